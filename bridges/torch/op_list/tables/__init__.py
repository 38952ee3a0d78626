"""What operators are in PyTorch, a table for each family; `all_tables` registers them.

May import `emission` and `sources` beside it, and framework.
"""
