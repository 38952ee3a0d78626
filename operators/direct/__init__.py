"""Convolutions, poolings and batch norm of images in C: the library "direct" behind the registry.

Registers kernels beside the reference ones. May import base, math, conv and backends.
"""
