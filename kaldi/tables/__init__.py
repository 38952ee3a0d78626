"""Kaldi's tables: archives and script files, by key.

Gives readers and writers of every kind of value. May import files, fst and lattices; kinds of
values that higher floors have are read by the modules of `KIND_MODULES`.
"""

KIND_MODULES: list[str] = []
"""Modules whose `KINDS` are kinds of values too; a floor adds its own when it is imported."""
