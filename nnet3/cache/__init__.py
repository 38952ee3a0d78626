"""Caches of compiled computations and of computers by request, and the file of computations.

Gives `CachingCompiler` and `ComputerCache`. May import run and every room before it.
"""
