"""Pronunciations that models know, read back from their graphs; new words' are guessed.

May import `graph_making` and the rooms before it.
"""
