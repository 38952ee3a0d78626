"""Kaldi's programs for features of audio. May import every room of this floor."""
