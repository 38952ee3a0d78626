"""Weighted finite-state acceptors and transducers: their arrays, files, properties, operations.

Gives `Fst`, `read_fst`, `write_fst` and operations on FSTs to chain, egs, tables and programs. May
import files and graph.

Source: OpenFst; Kaldi's `fstext/`.
"""
