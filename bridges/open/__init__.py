"""What is in a file: `opscope.open(path)`, of any kind that `recognize` knows.

Gives `FileInfo`: facts, with the model behind them. May import framework, nnet3, cntk and all
other rooms of bridges.
"""
