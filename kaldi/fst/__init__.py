"""Weighted finite-state acceptors and transducers: their arrays, files, properties, operations.

Gives `Fst`, the reader and the writer of OpenFst's files and operations on FSTs to nnet3
and speech. May import files.

Source: OpenFst; Kaldi's `fstext/`.
"""
