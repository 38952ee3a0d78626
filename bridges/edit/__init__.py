"""Editing of networks of all kinds by one interface: `opscope.edit(path_or_net)`.

`editor` is the interface; models carry the edits out. May import framework, nnet3, cntk, and the
rooms recognize, model and view.
"""
