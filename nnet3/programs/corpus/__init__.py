"""Kaldi's programs that prepare the data of a corpus. May import every room of this floor."""
