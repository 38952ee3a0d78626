"""Emitters of operators, a module a family; see `emission.py`.

Importing `all_tables` registers them. May import the room's `emission`.
"""
