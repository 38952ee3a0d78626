"""CNTK's model files and checkpoints."""
