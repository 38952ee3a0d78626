"""ONNX files, both ways: `files` reads and writes them, the other rooms give them their meaning.

Gives graphs of ONNX operators to write, and nets made from such files.
"""
