"""Lattices of Kaldi: their files, operations, determinization, phone alignment.

Gives `CompactLattice`, `RawLattice`, `determinized` and `phone_aligned` to nnet3 and speech, and
`Paths` to nnet3 and cntk. May import files and fst.

Source: Kaldi's `lat/`, `fstext/lattice-*.h`.
"""
