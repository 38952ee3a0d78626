"""The command line `opscope`; each command is loaded when it is called.

Gives `main`. May import every room.
"""
