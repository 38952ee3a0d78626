"""Indexes (n, t, x) as arrays: packing, finding, sets of times, equal sequences.

Gives `Columns` and searches in whole lists of rows to graph, components and compile. May import
framework.
"""
