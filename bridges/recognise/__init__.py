"""What any file is, by its content: `opscope.open(path)` and the kinds that other commands ask for.

`recognising` gives a file's kind, `opening` what is in it. May import framework, nnet3, cntk and
bridges/onnx.
"""
