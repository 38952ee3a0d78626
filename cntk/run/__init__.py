"""A network that runs: built from a section, lowered, with states carried between minibatches.

Gives `CntkNet` to training and actions. May import lower, readers, ndl
and brainscript.
"""
