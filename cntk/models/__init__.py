"""CNTK's model files and checkpoints.

Gives `open_model`, `write_model` and `dump` to mel, run and sgd. May import network.
"""
