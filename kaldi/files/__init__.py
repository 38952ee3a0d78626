"""Kaldi's file formats: tokens, matrices, sparse rows, posteriors, trees, transition models.

Gives `Reader`, `Writer` and the values of files to every room. May import framework.
"""
