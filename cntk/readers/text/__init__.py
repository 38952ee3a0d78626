"""CNTK's text format.

Gives the reader and the deserializer of it. May import config and readers.base.
"""
