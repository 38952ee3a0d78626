"""A whole nnet3 training in one call.

Gives recipes to the command line. May import jobs, and the floors below.
"""
