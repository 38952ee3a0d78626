"""Caches of compiled computations and of computers by request, on disk for the next process too, and
the file of computations.

Gives `CachingCompiler` and `ComputerCache`. May import run and every room before it.
"""
