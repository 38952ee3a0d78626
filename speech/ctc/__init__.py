"""Recognizers over networks that were trained by CTC: tokens, their graph, features, log-
probabilities.

Gives `CtcModel`. May import fst, lexicon, graph_making and the rooms before them.

Source: Graves et al. 2006, "Connectionist temporal classification"; Miao et al. 2015, "EESEN".
"""
