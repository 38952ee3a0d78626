"""The rows of an nnet3 network at all times: what each node computes and reads, for any length.

Gives `Plan`, `Grid`, `Read`, `loop_in`, and components and steps of recurrent layers as operators,
to those who write networks for other frameworks. May import framework and nnet3.
"""
