"""The text of networks: config lines, descriptors and nodes.

Gives parsed values with their text. May import framework.
"""
