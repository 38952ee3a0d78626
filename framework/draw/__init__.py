"""What is shown of nets: Graphviz text, SVG whose nodes are placed in layers, summaries.

Gives `to_dot` and `to_svg` to the command line, and `Shown` to nets and builders, which then show
themselves. May import base and ir.
"""
