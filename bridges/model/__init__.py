"""Networks of every kind behind one face: what all commands open, run, edit and save.

Gives `open_model`, and `Model` with a class for each family; `op_nets` and its like edit op lists.
May import framework, nnet3, cntk and the room recognize.
"""
