"""Decoding graphs: composition with look-ahead, grammars of phrases, graphs on disk.

Gives search `StaticGraph` and `LookaheadGraph`, made once and kept on disk. May import framework
and kaldi.

Source: OpenFst's `label-reachable.h`, `lookahead-filter.h`, `ngram-fst.h`; Kaldi's `fstext/`.
"""
