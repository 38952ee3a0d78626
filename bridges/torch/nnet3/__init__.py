"""What an nnet3 network is in PyTorch: layers of components, the forward function, steps of loops.

Gives `written_forward`. May import framework, nnet3, the files and templates of `bridges/torch`,
and the time grids of `onnx`.
"""
