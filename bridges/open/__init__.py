"""What is in a file: `opscope.open(path)`, of any kind that `recognize` knows.

Gives `FileInfo`: facts, with the model at hand. May import framework, nnet3, cntk and all
other rooms of bridges.
"""
