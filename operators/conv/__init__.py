"""Convolutions, poolings and local response normalisation over windows.

Registers operators; gives window arithmetic to CNTK's. May import base and linear.
"""
