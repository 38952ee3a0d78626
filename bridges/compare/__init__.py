"""Two models on the same inputs, layer by layer: `compare` and where they part ways.

`values` computes, `comparing` compares. May import framework, nnet3 and other rooms of bridges.
"""
