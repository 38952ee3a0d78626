"""New words in decoding graphs: contexts read back, paths joined to graphs, graphs made anew.

Gives `recognize` what `Model.add_words` does. May import `pronunciation` and the rooms before it.
"""
