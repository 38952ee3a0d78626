"""Layers made of several others: attention, transformers, encodings of positions, losses."""
