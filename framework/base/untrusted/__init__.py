"""The door for what files say: checked numbers, names, paths and sizes, limits and roots.

May import errors and settings of base, nothing else.
"""
