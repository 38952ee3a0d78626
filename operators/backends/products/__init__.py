"""Products of matrices: by MKL, by OpenBLAS, by loops of our own. May import the operators of
products."""
