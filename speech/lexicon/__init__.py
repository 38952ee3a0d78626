"""Lexicons: pronunciations of words as text, their transducers, Kaldi's lang folders.

May import `fst` and `language_model`, and the floors below.
"""
