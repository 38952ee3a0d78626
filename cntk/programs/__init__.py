"""The commands of `opscope cntk`, and checks of CNTK's files without data.

Gives commands to the command line. May import every room of this floor.
"""
