"""Two models on the same inputs, layer by layer: `compare`, where they part ways, table and plot.

A module for each form of a model computes its layers; `matching` finds pairs, `comparing` compares.
May import framework, nnet3, cntk and other rooms of bridges.
"""
