"""Elementwise functions, arithmetic, comparisons, reductions, softmax and normalization.

Registers operators; gives little else. May import base.
"""
