"""Any network as a PyTorch module: source, safetensors state, config; and back.

Text and arrays alone: torch itself is not imported. Gives `to_torch`, `weights_from_torch`, and
`importing`: `from_torch`. May import framework, nnet3, cntk, `model`, `recognize` and `inference`.
"""
