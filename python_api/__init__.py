"""What users call: NetBuilder, training, metrics, generation, code, conversion, the command line.

Rooms, in their order: builder, ranks, train, metrics, generate, to_python, formats, cli. May import
all floors.
"""
