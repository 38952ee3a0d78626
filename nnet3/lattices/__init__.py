"""Lattices of Kaldi, and the supervision of chain examples that is made of them.

Gives `CompactLattice`, its files and operations, phone alignment and `SupervisionMaker` to tables
and programs. May import files, fst and chain.

Source: Kaldi's `lat/`, `fstext/lattice-*.h`, `chain/chain-supervision.cc`.
"""
