"""Token passing over a decoding graph: best paths block by block, and raw lattices as arrays.

Gives `Decoder` to lattice, recognize and programs. May import fst of this floor, framework, nnet3's
files and lattices.

Source: Kaldi's `decoder/lattice-faster-decoder.cc`.
"""
