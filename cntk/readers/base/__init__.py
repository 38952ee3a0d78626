"""What readers share: streams, orders, packing, layouts, tables, and readers by name.

Gives `create_reader` and `Minibatch`. May import config and lattices.
"""
