"""Fused loops: scalar expressions, derivatives, C and CUDA text, compiler, team of threads.

Gives runtime and loops compiled functions. May import base and ir.
"""
