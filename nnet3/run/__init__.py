"""Running lowered computations: one request, or several segments in turn.

Gives `NnetComputer` and `SegmentComputer`. May import network, lower and below.
"""
