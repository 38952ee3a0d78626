"""Kaldi's tables of features and labels, read as CNTK's Kaldi2Reader does, and written.

Gives Kaldi2Reader, with its sequence training, and its writer. May import config,
readers.base and readers.htk.
"""
