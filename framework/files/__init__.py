"""Nets and arrays on disk: `.pb` beside `.safetensors`, NumPy's files, never pickle.

Gives `save`, `load`, `load_parameters`, checkpoints, tensor files and arrays to all above. May
import base, ir, passes and runtime.
"""
