"""Kaldi's nnet3 networks, compiled to op lists."""
