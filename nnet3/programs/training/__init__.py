"""Kaldi's programs that train and judge networks. May import every room of this floor."""
