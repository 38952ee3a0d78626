"""Editing of networks of all kinds by one interface: `opscope.edit(path_or_net)`.

`editor` is the interface, `kinds` opens and saves, `op_nets` and its like carry out edits of op
lists. May import framework, nnet3, cntk, bridges/recognise and bridges/view.
"""
