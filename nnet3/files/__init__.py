"""Training examples and Indexes in Kaldi's files.

Gives `NnetExample`, `read_indexes` and `write_indexes` to every room. May import kaldi.
"""
