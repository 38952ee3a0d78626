"""Feed-forward networks from CNTK to Kaldi's nnet3, and back."""
