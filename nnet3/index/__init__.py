"""Indexes (n, t, x) as arrays: packing, finding, sets of times, equal sequences.

Gives graph and compile array operations on whole lists of rows. May import framework.
"""
