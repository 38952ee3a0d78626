"""From commands to operators over view variables.

Gives `lower_computation` and the dialect of commands. May import compile and below.
"""
