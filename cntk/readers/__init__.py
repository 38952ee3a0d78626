"""Readers and writers of CNTK: from files to minibatches, and from values to files.

Rooms: base, then one for each format. `composite` joins deserializers, `catalog` finds readers by
their names in configs. Gives `create_reader` and `create_writer`. May import config and lattices.
"""
