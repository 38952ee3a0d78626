"""Optimization of compiled computations: one ordered list of passes, each with its switch.

Gives `optimize`, `compile_optimized` and `OptimizeOptions`; the list is in `passes`, and
docs/adding_an_optimization_pass.md adds one. May import graph, compile and below. Source: Kaldi's
nnet-optimize.cc.
"""

from .options import OptimizeOptions
from .passes import PASSES, Pass, compile_optimized, optimize

__all__ = ["PASSES", "OptimizeOptions", "Pass", "compile_optimized", "optimize"]
