"""Fused loops: scalar expressions, their C and CUDA text, the compiler, and the team of threads.

Gives runtime and loops compiled functions. May import base and ir.
"""
