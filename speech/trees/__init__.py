"""Phonetic decision trees: statistics of states in context, clusters, questions, growing of trees.

Gives `TreeStats`, `Questions`, `build_tree` and the trees of monophones and biphones to
programs. May import framework, kaldi and ivector.

Source: Kaldi's `tree/`.
"""
