"""Nets inside nets: the parts that recurrent and recursive nets share.

Gives operators the recurrent and recursive nets of its two rooms. May import all rooms.
"""
