"""Convolutions, poolings and batch norm of images in C: the library "direct" of the registry.

Registers kernels beside the reference ones. May import base, math, conv and backends.
"""
