"""Faster kernels of the same operators: products by MKL, OpenBLAS and packed GEMM of our own;
softmax, normalization and attention in C.

Registers kernels beside the reference ones. May import all rooms of operators before it.
"""
