"""What is compiled once: computations and computers by request, and their file.

Gives `CachingCompiler` and `ComputerCache`. May import run, optimize and below.
"""
