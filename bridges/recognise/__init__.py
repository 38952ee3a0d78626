"""What any file is, by its content: the kinds, and the one recognition for all that take files.

`recognising.kind_of` gives a file's kind. May import framework, nnet3 and cntk, and no other room
of this floor: all of them may ask for a kind.
"""
