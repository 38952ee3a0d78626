"""Word errors: hypotheses beside references, aligned and counted.

Gives `alignment`, `ErrorCounts` and `oracle` to programs, and the command `opscope wer`. May import
`kaldi` alone.

Source: Kaldi's `util/edit-distance-inl.h`, `bin/compute-wer.cc`.
"""
