"""Readers and writers of CNTK: from files to minibatches, and from values to files.

Rooms: base, then one for each format; this folder composes deserializers. May import config and
lattices.
"""
