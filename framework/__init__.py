"""The runtime of op lists; it knows no operator by name.

Rooms, in their order: base, ir, passes, fusion, runtime, files, loops, draw. May import proto.
"""
