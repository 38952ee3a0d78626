"""Pronunciations that models know, read back from their graphs; those of new words, guessed.

May import `graph_making` and the rooms before it.
"""
