"""The door for what files say: checked numbers, names and sizes, the opener, limits and roots.

May import errors and settings of base, nothing else.
"""
