"""Decoding graphs made of a lexicon, a grammar and an acoustic model: the commands of mkgraph.sh as one.

Gives `make_graph`. May import fst and language_model, and the floors below.
"""
