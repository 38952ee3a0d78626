"""Kaldi's tables: archives and script files, by key.

Gives readers and writers of every kind of value. May import files and chain.
"""
