"""Lattices of words: determinised, aligned to words and phones, with confidences and n-best lists.

Gives `determinised`, `word_aligned`, `lexicon_aligned`, `minimum_bayes_risk` and `n_best` to
recognise and programs. May import fst and search of this floor, framework, nnet3's files and
lattices.

Source: Kaldi's `lat/`.
"""
