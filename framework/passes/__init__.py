"""Functions from net to net: gradients, updates, clean-up, double precision, and their runner.

Gives builders and nets ready-made pipelines. May import base and ir.
"""
