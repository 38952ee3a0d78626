"""Bridges to other formats and to people's eyes: ONNX, PyTorch, pages, comparing, editing.

Above all front ends and below python_api: may import framework, operators, nnet3 and cntk.
"""
