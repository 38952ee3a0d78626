"""The base of everything: errors, switches, dtypes, places, shapes, sequences, scopes, contexts.

Gives these to every floor. May import nothing but proto.
"""
