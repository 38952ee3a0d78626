"""Kaldi's programs that make and change examples for training. May import every room of this
floor."""
