"""Sizes and shapes, known or not. Imports dtypes and errors alone."""
