"""Kaldi's file formats: tokens, matrices, sparse rows, posteriors, examples, transition models.

Gives readers and writers to every room. May import framework.
"""
