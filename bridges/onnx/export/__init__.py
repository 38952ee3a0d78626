"""ONNX out: op lists and CNTK networks in inference form, each run before its file is written.

Gives `to_onnx`, `check_export`, `write_checked`. May import files, framework, operators, cntk and
what recognises files of nnet3.
"""
