"""What users call: NetBuilder, training, generation, code, conversion, the command line.

Rooms, in their order: builder, train, generate, to_python, recipe, convert, cli. May import all
floors.
"""
