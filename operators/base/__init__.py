"""What kernels of all families share: prepared calls, copies, range checks of row numbers.

Gives helpers, registers nothing. May import framework.
"""
