"""Operators whose device form is a kernel of native/cuda. May import the operators."""
