"""LF-MMI ("chain") training: graphs, supervision, chain examples and the objective function.

Source: Povey et al. 2016, "Purely sequence-trained neural networks for ASR based on lattice-free
MMI"; Kaldi's `chain/` and `nnet3/nnet-chain-*`.
"""
