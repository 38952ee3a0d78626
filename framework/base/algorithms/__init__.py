"""Generators, orders and searches that the originals' results depend on. Imports nothing."""
