"""nnet3 networks as ONNX graphs: times, descriptors, components, recurrent layers, streams.

Gives `nnet3_graph` and `Stream`. May import framework, proto, nnet3, and `files` beside it.
"""
