"""N-gram language models: ARPA files, counting, smoothing, mixing, pruning, scores, FSTs.

May import `fst` and the floors below.
"""
