"""Ranks that train together: how minibatches are cut, and what the ranks agree on.

Gives `train` its part of what several processes do. May import builder.
"""
