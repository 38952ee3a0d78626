"""Kaldi's programs for lattices and the supervision made of them. May import every room of this
floor."""
