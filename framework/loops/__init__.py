"""Nets inside nets: what a step net or a node net has in common with the net around it.

Gives operators the recurrent and recursive nets of its two rooms. May import all rooms but draw.
"""
