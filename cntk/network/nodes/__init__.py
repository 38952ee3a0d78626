"""A node and its kind: attributes, NDL functions, shape rules, geometry, initial values, loops.

Gives `Node`, `Kind` and shape rules to kinds and networks. May import base.
"""
