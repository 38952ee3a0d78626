"""Rules for ATen's operators, a module a family; `program.py` loads them all.

May import framework, the graph and stages of `bridges/onnx/importing`, and `calls.py` here.
"""
