"""Tables of numbers and labels in text.

Gives UCIFastReader. May import readers.base, readers.binary and readers.htk.
"""
