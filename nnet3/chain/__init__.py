"""LF-MMI ("chain") training: graphs, supervision, chain examples and the objective function.

Gives `Supervision`, chain examples and `DenominatorGraph` to training, egs and tables. May import
files and graph.

Source: Povey et al. 2016, "Purely sequence-trained neural networks for ASR based on lattice-free
MMI"; Kaldi's `chain/` and `nnet3/nnet-chain-*`.
"""
