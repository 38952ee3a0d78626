"""RecursiveNet: a node net over the nodes of trees, and its gradient.

Gives `RecursiveNet`; nodes of one height are rows of a batch. May import loops and below.
"""
