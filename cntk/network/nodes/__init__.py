"""Nodes of a network and what their kinds are made of: rules, geometry, given values, loops.

Gives `Node`, `Kind` and shape rules to kinds and networks. May import base.
"""
