"""The network that all of CNTK's languages build, with its editing and validation.

Rooms: nodes (a node and the parts of its kind), kinds (all kinds, which `catalog` finds by name),
standard (networks from a few sizes). Gives `Network` to every later room. May import base and
config.
"""
