"""Kaldi's programs for lattices of words, rescoring and scores. May import every room of this
floor."""
