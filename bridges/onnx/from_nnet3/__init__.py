"""nnet3 networks as ONNX graphs: op lists with folded scales, cells of recurrent layers, streams.

Gives `nnet3_graph` and `Stream`. May import framework, proto, nnet3, `bridges/nnet3_rows`, and
`files` and `export` beside it.
"""
