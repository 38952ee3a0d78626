"""Operators over packed sequences: context, pooling, shapes, softmax.

Registers operators; gives offsets helpers to losses. May import base.
"""
