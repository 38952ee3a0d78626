"""From a request to commands: steps, input locations, the compiler, shortcut compilation.

Gives `Compiler`, `Computation` and `Command`, and the analysis of accesses. May import index,
components and graph.
"""
