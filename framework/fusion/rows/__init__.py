"""Rows of matrices by blocks, copied, packed. May import the libraries."""
