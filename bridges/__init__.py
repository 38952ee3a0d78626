"""Bridges between formats and to people's eyes: ONNX, PyTorch, nnet3 and CNTK, pages, comparing.

Above all front ends and below scale: may import framework, operators, nnet3, cntk and speech.
"""
