"""Drawings and summaries of networks: layers as boxes with a row for each node, SVG in columns.

Gives `ShownNnet` to `Nnet`, which then shows itself. May import language, components and graph, and
`framework.draw`.
"""
