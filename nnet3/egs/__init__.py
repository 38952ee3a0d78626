"""Training examples: made from features and targets, selected, shuffled and merged.

Gives `ExampleMerger` and `UtteranceSplitter` to programs and recipes. May import files, chain and
training.
"""
