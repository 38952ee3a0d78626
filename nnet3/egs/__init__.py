"""Training examples: made from features and targets, selected, shuffled, merged, kept on disk.

Gives `ExampleMerger` and `UtteranceSplitter` to programs and recipes. May import files, chain and
training.
"""
