"""CNTK's networks, configs and readers, lowered to op lists.

Rooms, in their order: base, config, lattices, network, operators, lower, readers, models, ndl, mel,
brainscript, run, sgd, actions, programs. A room imports from those before it. May import operators
and below.
"""
