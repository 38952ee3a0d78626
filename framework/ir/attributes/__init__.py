"""Attributes of messages: arrays in them, and the checks of those that no registration knows.

May import base and the rest of ir.
"""
