"""Operators: one small module for each family.

Importing `all` registers all of them; importing one module registers only its own.
"""
