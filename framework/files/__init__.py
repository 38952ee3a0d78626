"""Nets and arrays on disk: `.pb` beside `.safetensors`, never pickle.

Gives `save`, `load`, `load_parameters`, checkpoints and tensor files to all above. May import base,
ir, passes and runtime.
"""
