"""Networks of Kaldi and CNTK as PyTorch modules: source, safetensors state, config; and back.

Text and arrays alone: torch itself is not imported. Gives `to_torch`, `weights_from_torch`, and
`importing`: `from_torch`. May import framework, nnet3, cntk, `recognise`, the time grids of `onnx`.
"""
