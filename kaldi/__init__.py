"""Kaldi's files: matrices, transition models, tables, FSTs, lattices.

Gives them to nnet3, cntk and speech, which stand above. May import framework and operators.
"""
