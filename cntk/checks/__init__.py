"""Checks of configs without a run: each section is read as its action reads it, nothing is written.

Gives `Checker` to programs and to the start of a run. May import every room but programs.
"""
