"""Running lowered computations: one request, or several segments in turn.

Gives `NnetComputer` and `SegmentComputer`. May import lower and below.
"""
