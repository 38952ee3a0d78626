"""Training by several ranks: the section `ParallelTrain`, and the nets that ranks run between them.

Gives `ParallelOptions`, `Ranks` and `communicator_of`. May import config and run; sgd and actions
use it.
"""
