"""Building blocks of kernels of all families: prepared calls, copies, range checks of row numbers.

Gives helpers, registers nothing. May import framework.
"""
