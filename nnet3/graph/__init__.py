"""The rows that a request needs of a network: topology, order of nodes, computation graph.

Gives `ComputationRequest` and `Graph` to the compiler. May import index, language and components.
"""
