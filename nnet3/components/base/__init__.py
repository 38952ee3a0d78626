"""Base of all component types: the class itself, its fields in files, its lowering to operators.

Gives `Component`, kinds of fields, the wording of info texts and recipes to the families beside it,
and `ComponentOps` to compilers. May import: files, config lines and indexes of nnet3.
"""
