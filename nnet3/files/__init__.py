"""Training examples and Indexes in Kaldi's files; acoustic models of nnet2, to be copied.

Gives `NnetExample`, `read_indexes` and `write_indexes` to every room. May import kaldi.
"""
