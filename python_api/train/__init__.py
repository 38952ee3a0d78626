"""`train`: the loop over epochs, with checkpoints, history, curves and progress.

Gives training to users, recipes and the command line. May import builder.
"""
