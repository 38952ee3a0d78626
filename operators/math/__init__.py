"""Elementwise functions, arithmetic, comparisons, reductions, softmax and normalisation.

Registers operators; gives little else. May import base.
"""
