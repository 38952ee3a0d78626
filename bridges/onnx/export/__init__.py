"""ONNX out: nets in inference form, each run before its file is written.

Gives `to_onnx`, `check_export`, `write_checked`. May import files, inference, framework, operators,
cntk and what recognizes files of nnet3.
"""
