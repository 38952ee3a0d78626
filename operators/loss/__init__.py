"""Losses and metrics over rows, elements and sequences.

Registers operators. May import base, linear, math and sequence.
"""
