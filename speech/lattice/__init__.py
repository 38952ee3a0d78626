"""Lattices of words: aligned to words and phones, with confidences and n-best lists; rescored.

Gives `word_aligned`, `lexicon_aligned`, `minimum_bayes_risk` and `n_best` to recognize and
programs. May import search of this floor, framework and kaldi.

Source: Kaldi's `lat/`.
"""
