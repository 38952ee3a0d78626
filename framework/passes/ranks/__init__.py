"""Passes for training on several ranks. May import the other passes."""
