"""From graphs of phones to graphs of transition-ids: contexts, HMMs, self-loops.

Gives the steps of decoding, training and denominator graphs to nnet3 and speech. May import files
and fst.

Source: Kaldi's `fstext/` and `hmm/hmm-utils.cc`.
"""
