"""The parts of readers: streams, orders, packing, minibatch layouts, tables.

Gives `DataReader`, `DataWriter`, `Deserializer` and `Minibatch`. May import base, config and
lattices.
"""
