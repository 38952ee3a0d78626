"""ONNX in: a model's graph, checked, becomes nets of operators for each signature of its inputs.

Gives `from_onnx` and `OnnxModel`. May import framework, operators (by name) and bridges/onnx/files.
"""
