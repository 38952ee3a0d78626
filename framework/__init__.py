"""The runtime of op lists; it knows no operator by name.

Rooms, in their order: base, ir, editing, parallel, draw, passes, fusion, runtime, files, training,
loops. May import proto.
"""
