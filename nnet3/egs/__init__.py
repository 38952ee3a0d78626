"""Training examples: made from features and targets, selected, shuffled and merged."""
