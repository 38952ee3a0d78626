"""Kaldi's programs for what graphs are made of: trees, first models, language models. May import
every room of this floor."""
