"""From a request to commands: steps, input locations, the compiler, shortcut compilation.

Gives `Computation` and what reads and writes its matrices. May import graph, network and below.
"""
