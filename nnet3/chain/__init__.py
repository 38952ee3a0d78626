"""LF-MMI ("chain") training: phone LMs, graphs, supervision, examples, the objective function.

Gives `Supervision`, `SupervisionMaker`, chain examples and `DenominatorGraph` to training, egs and
programs. May import files, graph and kaldi.

Source: Povey et al. 2016, "Purely sequence-trained neural networks for ASR based on lattice-free
MMI"; Kaldi's `chain/` and `nnet3/nnet-chain-*`.
"""
