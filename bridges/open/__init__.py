"""What is in a file: `opscope.open(path)`, of any kind that `recognise` knows.

May import framework, nnet3, cntk and the rooms recognise and onnx.
"""
