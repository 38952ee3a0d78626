"""From commands to operators over view variables.

Gives `lower_request`, which makes operators of long recurrences, `lower_computation` and the
dialect of commands. May import compile and below.
"""
