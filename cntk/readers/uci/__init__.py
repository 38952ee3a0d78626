"""Tables of numbers and labels in text.

Gives UCIFastReader. May import config, readers.base, readers.binary and readers.htk.
"""
