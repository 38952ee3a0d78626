"""Optimisation of compiled computations: one ordered list of passes, each with its switch.

Gives `optimize` and `OptimizeOptions`; the list is in `passes`, docs/adding_an_optimisation_pass.md
adds one. May import graph, compile and below. Source: Kaldi's nnet-optimize.cc.
"""

from .options import OptimizeOptions
from .passes import PASSES, Pass, optimize

__all__ = ["PASSES", "OptimizeOptions", "Pass", "optimize"]
