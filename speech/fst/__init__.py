"""FSTs of decoding graphs: OpenFst's files as arrays, composition with look-ahead, grammars.

Gives search `StaticGraph` and `LookaheadGraph`, made once and kept on disk. May import framework
and nnet3's files and fst.

Source: OpenFst's `label-reachable.h`, `lookahead-filter.h`, `ngram-fst.h`; Kaldi's `fstext/`.
"""
