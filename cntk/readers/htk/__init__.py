"""HTK features, label files and lattices.

Gives HTKMLFReader, its deserializers and its writer. May import config, lattices and readers.base.
"""
