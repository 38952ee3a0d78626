"""Images and their classes.

Gives ImageReader and its deserializers. May import config and readers.base.
"""
