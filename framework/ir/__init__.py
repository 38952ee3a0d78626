"""The op list in memory: operators, variables and nets as values, the registry, shape inference.

Gives every floor the words in which nets are written, printed and read. May import base.
"""
