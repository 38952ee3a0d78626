"""Graphs of phones and of what was said, for supervision and denominators. May import
supervisions."""
