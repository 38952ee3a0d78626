"""The campaign: damaged files through every reader, outside the normal run of the tests.

`python build.py campaign --minutes N` runs it; see docs/promises.md.
"""
