"""Fused loops and lists of work as CUDA. May import scalar expressions."""
