"""Lattices of Kaldi: their files, operations, determinization, phone alignment.

Gives `CompactLattice`, `RawLattice`, `determinized` and `phone_aligned` to nnet3 and speech. May
import files and fst.

Source: Kaldi's `lat/`, `fstext/lattice-*.h`.
"""
