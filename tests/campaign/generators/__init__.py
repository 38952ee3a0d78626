"""Grammars of inputs that mostly are right; each module lists its own in `GENERATORS`."""
