"""CNTK networks as PyTorch modules, and trained weights back into the model file.

Gives `cntk_to_torch` and `cntk_weights_from_torch`. May import framework, cntk, and the templates
and results of `bridges/torch`. torch is not imported: text and arrays alone.
"""
