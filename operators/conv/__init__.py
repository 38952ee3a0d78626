"""Convolutions, poolings and local response normalization over windows.

Registers operators; gives window arithmetic to CNTK's. May import base and linear.
"""
