"""Pronunciations that models know, read back from their graphs; those of new words, guessed.

May import `recognize` and the rooms before it.
"""
