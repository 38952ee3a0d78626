"""The LF-MMI objective of a network on chain examples.

Source: Kaldi's `nnet3/nnet-chain-diagnostics.cc`.
"""

from __future__ import annotations

import numpy as np

from ...framework.backend import Place
from ..chain.denominator import DenominatorGraph
from ..chain.examples import NnetChainExample
from ..chain.objective import ChainOptions, chain_objective
from ..compile_cache import ComputerCache
from ..nnet import Nnet
from ..optimize import OptimizeOptions
from ..sparse import to_dense
from .chain_request import XENT, chain_request
from .progress import Log, ObjectiveInfo, averages, number


class NnetChainComputeProb:
    """Sums the objective over examples. Their weights of derivatives do not matter here.

    Args:
        nnet: it must not change meanwhile.
        graph: the denominator graph.
        options: settings of the objective; with xent_regularize that of the cross-entropy outputs
            is computed, too.
        place: where to compute; the CPU by default.
        optimize: passes of the compiler.
    """

    def __init__(
        self,
        nnet: Nnet,
        graph: DenominatorGraph,
        options: ChainOptions | None = None,
        place: Place | None = None,
        optimize: bool | OptimizeOptions = True,
    ) -> None:
        self.nnet, self.graph, self.options = nnet, graph, options or ChainOptions()
        self.totals: dict[str, ObjectiveInfo] = {}
        self._cache = ComputerCache(nnet, place, optimize)

    def compute(self, example: NnetChainExample) -> None:
        """Add one minibatch.

        Raises:
            FormatError, ShapeError: it does not fit the network.
            NotComputableError: outputs need inputs that it does not have.
        """
        xent = self.options.xent_regularize != 0
        computer = self._cache.computer(chain_request(self.nnet, example, xent=xent))
        for io in example.inputs:
            if not io.name.startswith("__"):
                computer.accept_input(io.name, to_dense(io.features))
        computer.run()
        for output in example.outputs:
            found = chain_objective(
                *(self.options, self.graph, output.supervision, computer.get_output(output.name)),
                deriv=False,
                xent=xent,
            )
            self._add(output.name, found.weight, found.objective, found.l2_term)
            if xent:
                logs = computer.get_output(output.name + XENT)
                cross_entropy = float(np.vdot(logs, found.xent_deriv))
                self._add(output.name + XENT, found.weight, cross_entropy)

    def _add(self, name: str, weight: float, objective: float, l2_term: float = 0.0) -> None:
        totals = self.totals.setdefault(name, ObjectiveInfo())
        totals.weight += weight
        totals.objective += objective
        totals.auxiliary += l2_term

    def print_total_stats(self, log: Log) -> bool:
        """Report as Kaldi does; whether there was anything to compute."""
        for name in sorted(self.totals, reverse=True):
            totals = self.totals[name]
            each = averages(totals.objective, totals.auxiliary, totals.weight)
            log(
                f"Overall log-probability for '{name}' is {each} per frame, over"
                f" {number(totals.weight)} frames."
            )
        return any(totals.weight > 0 for totals in self.totals.values())
