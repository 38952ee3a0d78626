"""Kaldi's programs that make graphs of phones and HMMs. May import every room of this floor."""
