"""New words in the folders of models, whose graphs are kept and get further paths.

Gives `adapt`. May import `pronunciation` and the rooms before it.
"""
