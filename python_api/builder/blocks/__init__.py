"""Methods of NetBuilder above single operators.

Layers made of several others: attention, transformers, encodings of positions, losses; and
operators of any number of variables.
"""
