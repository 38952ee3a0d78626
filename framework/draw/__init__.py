"""Pictures of nets: Graphviz text, and SVG whose nodes are placed in layers.

Gives `to_dot` and `to_svg` to the command line. May import base and ir.
"""
