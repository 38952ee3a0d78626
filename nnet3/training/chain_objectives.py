"""LF-MMI as the objective of a trainer.

    graph = DenominatorGraph.of_fst(read_fst("den.fst"), num_pdfs)
    objectives = ChainObjectives(graph, ChainOptions(xent_regularize=0.1))
    trainer = NnetTrainer(NnetTrainerOptions(), nnet, objective=objectives)
    for key, example in read_table("ark:egs", "chain_example"):
        trainer.train(example)

Source: Kaldi's `nnet3/nnet-chain-training.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...framework.ir.op_list import VarDecl
from ..chain.arrays import graph_arrays, supervision_arrays
from ..chain.denominator import DenominatorGraph, graphs_by_output
from ..chain.examples import NnetChainExample, NnetChainSupervision
from ..chain.objective import ChainOptions
from .chain_request import posteriors_of
from .sequence_objectives import SequenceObjectives, Slots

_SUPERVISION: Slots = {
    "arcs": ((-1, 4), "int32"),
    "weights": ((-1,), "float32"),
    "finals": ((-1, 2), "float32"),
    "weight": ((1,), "float32"),
    "layout": ((2,), "int32"),
    "graph_arcs": ((-1, 3), "int32"),
    "graph_probs": ((-1,), "float64"),
    "graph_initial": ((-1,), "float64"),
}


class ChainObjectives(SequenceObjectives):
    """The LF-MMI objective of each output that has an example's supervision; see `Objective`.

    Args:
        graph: the denominator graph, or one for each output.
        options: settings of the objective.
        apply_deriv_weights: whether the examples' weights of derivatives count.
    """

    operator = "nnet3.chain_objective"

    def __init__(
        self,
        graph: DenominatorGraph | Mapping[str, DenominatorGraph],
        options: ChainOptions | None = None,
        apply_deriv_weights: bool = True,
    ) -> None:
        self.options = options or ChainOptions()
        super().__init__(self.options.xent_regularize, {}, apply_deriv_weights)
        self._graphs = graphs_by_output(graph)
        self._graph_arrays: dict[str, dict[str, np.ndarray]] = {}  # by output

    def attributes(self) -> Mapping[str, Any]:
        """See `SequenceObjectives`."""
        return vars(self.options)

    def slots(self, deriv: VarDecl) -> Slots:
        """See `SequenceObjectives`."""
        if not self.options.uses_posteriors:
            return _SUPERVISION
        return {**_SUPERVISION, "posteriors": (deriv.shape, "float32")}

    def arrays(
        self, example: NnetChainExample, output: NnetChainSupervision
    ) -> dict[str, np.ndarray]:
        """See `SequenceObjectives`."""
        if output.name not in self._graph_arrays:
            self._graph_arrays[output.name] = graph_arrays(self._graphs[output.name])
        arrays = supervision_arrays(output.supervision) | self._graph_arrays[output.name]
        if self.options.uses_posteriors:
            arrays["posteriors"] = posteriors_of(example, output.supervision)
        return arrays
