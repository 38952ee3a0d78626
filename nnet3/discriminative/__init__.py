"""Discriminative training on lattices: supervisions, examples, MMI, MPFE and sMBR.

Gives `DiscriminativeSupervision`, examples and `discriminative_objective` to training, egs and
programs. May import files, chain and kaldi.

Source: Kaldi's `nnet3/discriminative-*` and `nnet3/nnet-discriminative-example.cc`.
"""
