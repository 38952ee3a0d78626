"""The door for what files say: checked numbers, names, paths and sizes, and the table of limits.

May import errors and settings of base, nothing else.
"""
