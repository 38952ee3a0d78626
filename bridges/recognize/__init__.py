"""What any file is, by its content: the registry of kinds, and one recognition for all commands.

`recognizing.kind_of` gives a file's kind, `kinds.kind_named` its row. May import framework, nnet3
and cntk, and no other room of this floor: rows name functions of these, and import none.
"""
