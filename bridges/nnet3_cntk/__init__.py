"""Feed-forward networks from CNTK to nnet3 and back.

Gives `to_cntk` and `to_nnet3` to conversions. May import both front ends; no room of this floor.
"""
