"""CNTK's networks, configs and readers, lowered to op lists.

Rooms, in their order: base, config, network, models, ndl, mel, brainscript, lattices, readers,
operators, lower, run, sgd, actions, programs. May import operators and below.
"""
