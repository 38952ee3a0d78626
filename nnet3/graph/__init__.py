"""What a request needs of a network: topology, order of nodes, the computation graph.

Gives `ComputationRequest` and `Graph` to the compiler. May import index and components.
"""
