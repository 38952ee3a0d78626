"""Caches of compiled computations and of computers by request; computations kept on disk for the
next process, and in files that the user names.

Gives `CachingCompiler` and `ComputerCache`. May import run and every room before it.
"""
