"""An nnet3 network as one op list for inputs of any length: rows are an axis, offsets attributes.

`Plan` says which rows each node computes and reads, `RowsWalk` writes them into a `RowsNet`; what
components become is up to those who write networks for other frameworks. May import framework,
operators and nnet3.
"""
