"""nnet3 networks as PyTorch modules: op lists in which components are calls of layers.

Gives `nnet3_to_torch` and the way back. May import framework, nnet3, `bridges/nnet3_rows`, and the
writer of op lists, files and templates of `bridges/torch`.
"""
