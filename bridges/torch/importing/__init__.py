"""PyTorch in: a `torch.export` program becomes nets of operators, as an ONNX model does.

Gives `from_torch` and `TorchProgram`. May import framework and `bridges/onnx/importing`, whose
graph, stages and engine it shares. torch is not imported: who passes a program has done that.
"""
