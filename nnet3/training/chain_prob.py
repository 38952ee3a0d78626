"""The LF-MMI objective of a network on chain examples.

Source: Kaldi's `nnet3/nnet-chain-diagnostics.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...framework.base.backend import Place
from ...kaldi.files.sparse import to_dense
from ..cache.computers import ComputerCache
from ..chain.denominator import DenominatorGraph, graphs_by_output
from ..chain.examples import NnetChainExample
from ..chain.objective import ChainOptions, chain_objective
from ..network.nnet import Nnet
from ..optimize import OptimizeOptions
from .chain_request import POSTERIORS, XENT, chain_request, posteriors_of
from .progress import Log, ObjectiveInfo, averages, number, ratio


class NnetChainComputeProb:
    """Sums the objective over examples. Their weights of derivatives do not matter here.

    Args:
        nnet: it must not change meanwhile.
        graph: the denominator graph, or one for each output.
        options: settings of the objective; with xent_regularize the objective of the cross-entropy
            outputs is also computed.
        place: where to compute; the CPU by default.
        optimize: passes of the compiler.
        store_component_stats: collect statistics of components in the network.
    """

    def __init__(
        self,
        nnet: Nnet,
        graph: DenominatorGraph | Mapping[str, DenominatorGraph],
        options: ChainOptions | None = None,
        place: Place | None = None,
        optimize: bool | OptimizeOptions = True,
        store_component_stats: bool = False,
    ) -> None:
        self.store_component_stats = store_component_stats
        self.nnet = nnet
        self._graphs = graphs_by_output(graph)
        self.options = options or ChainOptions()
        self.totals: dict[str, ObjectiveInfo] = {}
        self.remembered: dict[str, float] = {}  # of posteriors in the examples
        self._cache = ComputerCache(nnet, place, optimize)

    def compute(self, example: NnetChainExample) -> None:
        """Add one minibatch.

        Raises:
            FormatError, ShapeError: it does not fit the network.
            NotComputableError: outputs need inputs that it does not have.
        """
        xent = self.options.xent_regularize != 0
        stats = self.store_component_stats
        request = chain_request(self.nnet, example, xent=xent, store_component_stats=stats)
        computer = self._cache.computer(request)
        for io in example.inputs:
            if not io.name.startswith("__"):
                computer.accept_input(io.name, to_dense(io.features))
        computer.run()
        for output in example.outputs:
            result = chain_objective(
                self.options,
                self._graphs[output.name],
                output.supervision,
                computer.get_output(output.name),
                deriv=False,
                xent=xent,
            )
            self._add(output.name, result.weight, result.objective, result.l2_term)
            if any(io.name == POSTERIORS for io in example.inputs):
                kept = posteriors_of(example, output.supervision)
                if abs(float(kept[0].sum()) - 1.0) > 0.1:  # they are logarithms
                    kept = np.exp(kept)
                logs = computer.get_output(output.name)
                self.remembered[output.name] = self.remembered.get(output.name, 0.0) + float(
                    np.vdot(logs, kept)
                )
            if xent:
                logs = computer.get_output(output.name + XENT)
                cross_entropy = float(np.vdot(logs, result.xent_deriv))
                self._add(output.name + XENT, result.weight, cross_entropy)
        if stats:
            computer.store_statistics()

    def _add(self, name: str, weight: float, objective: float, l2_term: float = 0.0) -> None:
        totals = self.totals.setdefault(name, ObjectiveInfo())
        totals.weight += weight
        totals.objective += objective
        totals.auxiliary += l2_term

    def objective_per_frame(self) -> float:
        """The objective of all outputs together, over their weight; -inf where it is not finite."""
        weight = sum(totals.weight for totals in self.totals.values())
        parts = (totals.objective + totals.auxiliary for totals in self.totals.values())
        value = ratio(sum(parts), weight)
        return value if np.isfinite(value) else float("-inf")

    def print_total_stats(self, log: Log) -> bool:
        """Report as Kaldi does; whether there was anything to compute."""
        for name in sorted(self.totals, reverse=True):
            totals = self.totals[name]
            each = averages(totals.objective, totals.auxiliary, totals.weight)
            log(
                f"Overall log-probability for '{name}' is {each} per frame, over"
                f" {number(totals.weight)} frames."
            )
            if self.remembered.get(name):
                value = self.remembered[name]
                each = number(ratio(value, totals.weight))
                log(f"Total LWF is {number(value)} and it is {each} per frame.")
        return any(totals.weight > 0 for totals in self.totals.values())
