"""`opscope.convert`: one table of conversions between the formats of models and data.

Gives `convert` and the table. May import builder and to_python, and the floors below.
"""
