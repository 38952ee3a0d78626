"""BrainScript as text: tokens, parse tree, parser, printer, formatter.

Gives parse trees with places. May import base.
"""
