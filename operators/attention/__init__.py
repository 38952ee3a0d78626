"""Attention of queries over keys, numbers of positions, and encodings of these.

Registers operators. May import base, tensor and sequence.
"""
