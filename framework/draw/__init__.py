"""Pictures of nets: Graphviz text, and SVG by a layered layout of our own.

Gives `to_dot` and `to_svg` to the command line. May import base and ir.
"""
