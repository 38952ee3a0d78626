"""Neighboring operators as one loop. May import the kernels' binding."""
