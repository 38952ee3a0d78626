"""Operators that fill, reshape, join, cut, select and look up.

Registers operators. May import base.
"""
