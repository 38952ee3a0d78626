"""How each operator of ONNX is computed, a module a family: on the host, and by operators of a net.

Gives entries of the table in `calls`. May import bridges/onnx/importing/calls and files.
"""
