"""Nets of operators as PyTorch modules: one writer for any op list.

Gives `net_to_torch`; `tables` holds what operators are in PyTorch, and elementwise ones follow from
their scalar expressions. May import framework, `inference`, and the templates and
folders of `bridges/torch`. torch is not imported: text and arrays alone.
"""
