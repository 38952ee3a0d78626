"""Generation of token sequences by one step of a trained net.

Gives `Generator`. May import builder.
"""
