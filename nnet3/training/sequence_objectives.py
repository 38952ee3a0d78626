"""Objectives of whole sequences between a network's outputs and their derivatives: one operator for
each output that has an example's supervision, with the objective of `output-xent` beside it.

Source: Kaldi's `nnet3/nnet-chain-training.cc`, `nnet3/nnet-discriminative-training.cc`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...framework.base.scope import Scope
from ...framework.ir.desc import FORWARD, INPUT, OUTPUT
from ...framework.ir.op_list import VarDecl
from ...kaldi.files.sparse import to_dense
from ..chain.examples import NnetChainExample, NnetChainSupervision
from ..graph.request import ComputationRequest
from ..network.nnet import Nnet
from .chain_request import XENT, chain_request
from .example_request import count_examples
from .objectives import Outcome, StepBuilder, take_derivative
from .progress import ObjectiveInfo

TOTALS = "totals."
Slots = Mapping[str, tuple[tuple[int, ...] | None, str]]
"""Shapes and dtypes of the arrays of a supervision, by slot of the operator."""


class SequenceObjectives(ABC):
    """The base of objectives of sequences; see `Objective`.

    Args:
        xent_regularize: whether `output-xent` counts, if it is not 0.
        common: arrays that all outputs and examples share, by slot of the operator.
        apply_deriv_weights: whether the examples' weights of derivatives count.

    Attributes:
        operator: its type. totals: how many numbers it gives.
    """

    operator: str
    totals = 3

    def __init__(
        self,
        xent_regularize: float,
        common: Mapping[str, np.ndarray],
        apply_deriv_weights: bool = True,
    ) -> None:
        self.apply_deriv_weights = apply_deriv_weights
        self._xent = xent_regularize != 0
        self._common = common

    @abstractmethod
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the operator."""

    @abstractmethod
    def slots(self, deriv: VarDecl) -> Slots:
        """What the operator reads of a supervision, for a derivative of this shape."""

    @abstractmethod
    def arrays(
        self, example: NnetChainExample, output: NnetChainSupervision
    ) -> dict[str, np.ndarray]:
        """The arrays of these slots, except for the weights of derivatives."""

    def request(
        self, nnet: Nnet, example: NnetChainExample, store_component_stats: bool
    ) -> ComputationRequest:
        """See `Objective`."""
        return chain_request(
            nnet,
            example,
            xent=self._xent,
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
            for slot, (shape, dtype) in self.slots(deriv).items():
                inputs[slot] = step.declare(_variable(name, slot), shape, dtype, INPUT)
            inputs["deriv_weights"] = step.declare(
                _variable(name, "deriv_weights"), (-1,), "float32", INPUT
            )
            for slot, array in self._common.items():
                shape = (-1, *array.shape[1:])
                inputs[slot] = step.declare(f"objective.{slot}", shape, str(array.dtype), INPUT)
            totals = step.declare(TOTALS + name, (self.totals,), "float64", OUTPUT)
            outputs = {"deriv": deriv.name, "totals": totals}
            xent_deriv = derivs.get(name + XENT)
            if xent_deriv is not None:
                inputs["xent_output"] = f"output.{name}{XENT}"
                totals = step.declare(TOTALS + name + XENT, (2,), "float64", OUTPUT)
                outputs |= {"xent_deriv": xent_deriv.name, "xent_totals": totals}
            step.op(self.operator, inputs, outputs, self.attributes(), FORWARD)

    def values(self, nnet: Nnet, example: NnetChainExample) -> dict[str, np.ndarray]:
        """See `Objective`."""
        arrays = {f"objective.{slot}": array for slot, array in self._common.items()}
        arrays |= {
            f"input.{io.name}": to_dense(io.features)
            for io in example.inputs
            if not io.name.startswith("__")
        }
        for output in example.outputs:
            slots = self.arrays(example, output)
            weights = output.deriv_weights
            if not (self.apply_deriv_weights and len(weights)):
                weights = np.ones(output.supervision.rows, np.float32)
            slots["deriv_weights"] = weights
            arrays |= {_variable(output.name, slot): array for slot, array in slots.items()}
        return arrays

    def outcomes(self, scope: Scope) -> Iterator[Outcome]:
        """See `Objective`."""
        for name in scope.names():
            if name.startswith(TOTALS):
                yield Outcome(name.removeprefix(TOTALS), *scope.numpy(name).tolist())

    def total_lines(self, name: str, info: ObjectiveInfo) -> list[str]:
        """See `Objective`."""
        return info.total_lines(name)


def _variable(output: str, slot: str) -> str:
    return f"supervision.{output}.{slot}"
