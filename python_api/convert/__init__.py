"""Feed-forward networks from CNTK to nnet3 and back.

Gives `convert_file`. May import both front ends; no room of this floor.
"""
