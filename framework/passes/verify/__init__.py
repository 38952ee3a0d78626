"""The verifier: everything that can be wrong with a net and that needs no data to see.

Gives `verify` (raises the first problem) and `problems` (lists all). May import base and ir.
"""
