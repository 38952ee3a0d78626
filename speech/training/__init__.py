"""From recordings with texts to a recognizer: the stages of a training, each resumable.

Gives `train` and the command `opscope train-recognizer`. May import audio, features, ivector, fst,
language_model, search, lattice, lexicon, graph_making, adaptation, recognize, new_words, alignment,
scoring and trees.
"""
