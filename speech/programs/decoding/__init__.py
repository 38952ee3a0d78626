"""Kaldi's programs for alignments and decoding. May import every room of this floor."""
