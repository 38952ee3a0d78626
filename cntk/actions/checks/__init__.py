"""Checks of configs without a run: each section is read as its action reads it, nothing is written.

Gives `check_config` to programs, and to runs the warnings with which they begin.
"""
