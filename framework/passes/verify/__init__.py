"""The verifier finds every mistake in a net that can be seen without data.

Gives `verify` (raises the first problem) and `problems` (lists all). May import base and ir.
"""
