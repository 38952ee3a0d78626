"""`opscope.convert`: one table of conversions between the formats of models and data.

Gives `convert` and the table. May import to_python and convert, and the floors below.
"""
