"""Generators, orders and searches that the originals' results hang on. Imports nothing."""
