"""Forced alignment: when each word and phone of a known text was spoken.

Gives `align` to users and the command `opscope align`. May import every room of this floor but
programs.

Source: Kaldi's `decoder/decoder-wrappers.cc`, `decoder/training-graph-compiler.cc`.
"""
