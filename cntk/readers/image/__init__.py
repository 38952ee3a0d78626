"""Images and their classes.

Gives ImageReader and its deserializers. May import readers.base.
"""
