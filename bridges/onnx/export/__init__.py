"""ONNX out: op lists and CNTK networks in inference form, each run before its file is written.

Gives `check_export`, `write_checked`. May import files, framework, operators and cntk.
"""
