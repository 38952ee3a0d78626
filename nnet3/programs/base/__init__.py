"""The base of programs: a command in the manner of Kaldi's, common options, log origins.

Gives `program` and `Option`. May import every room of this floor.
"""
