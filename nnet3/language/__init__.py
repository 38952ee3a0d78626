"""The text of networks: config lines, descriptors and nodes.

Gives parsed lines, descriptors and nodes to graph, network and xconfig. May import framework.
"""
