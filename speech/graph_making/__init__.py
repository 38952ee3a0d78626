"""Decoding graphs made of a lexicon, a grammar and an acoustic model, as Kaldi's mkgraph.sh does.

Gives `make_graph`. May import fst, language_model and lexicon, and the floors below.
"""
