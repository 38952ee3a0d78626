"""LF-MMI as the objective of a trainer.

    graph = DenominatorGraph.of_fst(read_fst("den.fst"), num_pdfs)
    objectives = ChainObjectives(graph, ChainOptions(xent_regularize=0.1))
    trainer = NnetTrainer(NnetTrainerOptions(), nnet, objective=objectives)
    for key, example in read_table("ark:egs", "chain_example"):
        trainer.train(example)

Source: Kaldi's `nnet3/nnet-chain-training.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...framework.base.scope import Scope
from ...framework.ir.desc import FORWARD, INPUT, OUTPUT
from ...kaldi.files.sparse import to_dense
from ..chain.arrays import graph_arrays, supervision_arrays
from ..chain.denominator import DenominatorGraph
from ..chain.examples import NnetChainExample
from ..chain.objective import ChainOptions
from ..graph.request import ComputationRequest
from ..network.nnet import Nnet
from .chain_request import XENT, chain_request, posteriors_of
from .example_request import count_examples
from .objectives import Outcome, StepBuilder, take_derivative

_TOTALS = "totals."
_SUPERVISION = {
    "arcs": ((-1, 4), "int32"),
    "weights": ((-1,), "float32"),
    "finals": ((-1, 2), "float32"),
    "weight": ((1,), "float32"),
    "layout": ((2,), "int32"),
    "deriv_weights": ((-1,), "float32"),
}
_GRAPH = {
    "graph_arcs": ((-1, 3), "int32"),
    "graph_probs": ((-1,), "float64"),
    "graph_initial": ((-1,), "float64"),
}


class ChainObjectives:
    """The LF-MMI objective of each output that has an example's supervision; see `Objective`.

    Args:
        graph: the denominator graph.
        options: settings of the objective.
        apply_deriv_weights: whether the examples' weights of derivatives count.
    """

    def __init__(
        self,
        graph: DenominatorGraph,
        options: ChainOptions | None = None,
        apply_deriv_weights: bool = True,
    ) -> None:
        self.options = options or ChainOptions()
        self.apply_deriv_weights = apply_deriv_weights
        self._graph = {f"denominator.{n}": array for n, array in graph_arrays(graph).items()}

    def request(
        self, nnet: Nnet, example: NnetChainExample, store_component_stats: bool
    ) -> ComputationRequest:
        """See `Objective`."""
        return chain_request(
            nnet,
            example,
            xent=self.options.xent_regularize != 0,
            derivatives=True,
            store_component_stats=store_component_stats,
        )

    def count(self, example: NnetChainExample) -> int:
        """See `Objective`."""
        return count_examples(example.inputs)

    def build(self, step: StepBuilder, nnet: Nnet) -> None:
        """See `Objective`."""
        names = {node.name for node in nnet.outputs()}
        derivs = {name: take_derivative(step, name) for name in names}
        for name, deriv in derivs.items():
            if deriv is None or name.removesuffix(XENT) in names - {name}:
                continue
            inputs = {"output": f"output.{name}"}
            for slot, (shape, dtype) in _SUPERVISION.items():
                inputs[slot] = step.declare(_variable(name, slot), shape, dtype, INPUT)
            for slot, (shape, dtype) in _GRAPH.items():
                inputs[slot] = step.declare(f"denominator.{slot}", shape, dtype, INPUT)
            if self.options.uses_posteriors:
                inputs["posteriors"] = step.declare(
                    _variable(name, "posteriors"), deriv.shape, "float32", INPUT
                )
            totals = step.declare(_TOTALS + name, (3,), "float64", OUTPUT)
            outputs = {"deriv": deriv.name, "totals": totals}
            xent_deriv = derivs.get(name + XENT)
            if xent_deriv is not None:
                inputs["xent_output"] = f"output.{name}{XENT}"
                totals = step.declare(_TOTALS + name + XENT, (2,), "float64", OUTPUT)
                outputs |= {"xent_deriv": xent_deriv.name, "xent_totals": totals}
            step.op("nnet3.chain_objective", inputs, outputs, vars(self.options), FORWARD)

    def values(self, nnet: Nnet, example: NnetChainExample) -> dict[str, np.ndarray]:
        """See `Objective`."""
        arrays = dict(self._graph)
        arrays |= {
            f"input.{io.name}": to_dense(io.features)
            for io in example.inputs
            if not io.name.startswith("__")
        }
        for output in example.outputs:
            slots = supervision_arrays(output.supervision)
            weights = output.deriv_weights
            if not (self.apply_deriv_weights and len(weights)):
                weights = np.ones(output.supervision.rows, np.float32)
            slots["deriv_weights"] = weights
            if self.options.uses_posteriors:
                slots["posteriors"] = posteriors_of(example, output.supervision)
            arrays |= {_variable(output.name, slot): array for slot, array in slots.items()}
        return arrays

    def outcomes(self, scope: Scope) -> Iterator[Outcome]:
        """See `Objective`."""
        for name in scope.names():
            if name.startswith(_TOTALS):
                yield Outcome(name.removeprefix(_TOTALS), *scope.numpy(name).tolist())


def _variable(output: str, slot: str) -> str:
    return f"supervision.{output}.{slot}"
