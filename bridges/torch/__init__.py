"""nnet3 networks as PyTorch modules: source, safetensors state, config; and trained weights back.

Text and arrays alone: torch itself is not imported. Gives `to_torch`, `weights_from_torch`. May
import framework, nnet3, and the time grids of `onnx`.
"""
