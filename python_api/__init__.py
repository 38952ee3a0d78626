"""What users call: NetBuilder, training, saving and loading, the command line."""
