"""Operators that hold nets: composites, `recurrent` and `recursive`.

Registers operators. May import linear and framework's loops.
"""
