"""Passes by which a run keeps less in memory. May import the other passes."""
