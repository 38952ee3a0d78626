"""Training objectives: the operators between a network's outputs and their derivatives.

An `Objective` says how an example becomes a request and the values of variables, which operators
give the derivatives at the outputs, and where the results stand. `FrameObjectives` are the
objectives of Kaldi's `nnet3-train`; LF-MMI is another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...framework.base.scope import Scope
from ...framework.ir.desc import FORWARD, INPUT, OUTPUT
from ...framework.ir.op_list import VarDecl
from ...kaldi.files.sparse import to_dense
from ..files.examples import NnetExample
from ..graph.request import ComputationRequest
from ..network.nnet import Nnet
from .example_request import count_examples, example_request
from .progress import ObjectiveInfo

_TOTALS = "totals."


class Outcome(NamedTuple):
    """The objective of one minibatch at one output."""

    name: str
    weight: float
    objective: float
    auxiliary: float = 0.0


class StepBuilder(Protocol):
    """The interface of an objective to the step that is being built."""

    def op(self, op_type: str, inputs: Any, outputs: Any, attrs: Any, role: int) -> None:
        """Append an operator."""
        ...

    def declare(self, name: str, shape: Any, dtype: str, kind: int, value: Any = None) -> str:
        """Declare a variable, unless it is there; returns its name."""
        ...

    def variable(self, name: str) -> VarDecl | None:
        """A variable of the step."""
        ...

    def make_temporary(self, name: str) -> None:
        """Make a variable of the step one that operators write and nothing outside reads."""
        ...


class Objective(Protocol):
    """An objective of a training."""

    def request(self, nnet: Nnet, example: Any, store_component_stats: bool) -> ComputationRequest:
        """The request with derivatives for an example."""
        ...

    def count(self, example: Any) -> int:
        """How many examples are merged in it."""
        ...

    def build(self, step: StepBuilder, nnet: Nnet) -> None:
        """Append the operators from `output.NAME` to `output_deriv.NAME`, which are no inputs then.

        They have the role FORWARD; the backward operators of the network follow.
        """
        ...

    def values(self, nnet: Nnet, example: Any) -> Mapping[str, np.ndarray]:
        """The values of all input variables of the step: `input.NAME` and the objective's own."""
        ...

    def outcomes(self, scope: Scope) -> Iterator[Outcome]:
        """The objective of each output after a run."""
        ...

    def total_lines(self, name: str, info: ObjectiveInfo) -> list[str]:
        """The lines at the end of training for one output."""
        ...


def take_derivative(step: StepBuilder, output: str) -> VarDecl | None:
    """The variable of an output's derivative, no input any more; None where it is not wanted."""
    var = step.variable(f"output_deriv.{output}")
    if var is None or var.kind != INPUT:
        return None
    step.make_temporary(var.name)
    return var


class FrameObjectives:
    """Objectives that compare each row of an output with a row of targets; the type of each, linear
    or quadratic, stands in its node. Source: Kaldi's `nnet3/nnet-training.cc`."""

    def request(
        self, nnet: Nnet, example: NnetExample, store_component_stats: bool
    ) -> ComputationRequest:
        """See `Objective`."""
        return example_request(nnet, example, True, store_component_stats)

    def count(self, example: NnetExample) -> int:
        """See `Objective`."""
        return count_examples(example.io)

    def build(self, step: StepBuilder, nnet: Nnet) -> None:
        """See `Objective`."""
        for node in nnet.outputs():
            deriv = take_derivative(step, node.name)
            if deriv is None:
                continue
            name = f"supervision.{node.name}"
            inputs = {
                "output": f"output.{node.name}",
                "supervision": step.declare(name, deriv.shape, "float32", INPUT),
            }
            totals = step.declare(_TOTALS + node.name, (2,), "float64", OUTPUT)
            outputs = {"deriv": deriv.name, "totals": totals}
            step.op(f"nnet3.{node.objective}_objective", inputs, outputs, {}, FORWARD)

    def values(self, nnet: Nnet, example: NnetExample) -> dict[str, np.ndarray]:
        """See `Objective`."""
        outputs = {node.name for node in nnet.outputs()}
        return {
            f"{'supervision' if io.name in outputs else 'input'}.{io.name}": to_dense(io.features)
            for io in example.io
        }

    def outcomes(self, scope: Scope) -> Iterator[Outcome]:
        """See `Objective`."""
        for name in scope.names():
            if name.startswith(_TOTALS):
                weight, objective = scope.numpy(name).tolist()
                yield Outcome(name.removeprefix(_TOTALS), weight, objective)

    def total_lines(self, name: str, info: ObjectiveInfo) -> list[str]:
        """See `Objective`."""
        return info.total_lines(name)
