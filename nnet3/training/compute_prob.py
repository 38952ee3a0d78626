"""Objective and accuracy of a network on examples, and the gradient of the objective.

    prob = NnetComputeProb(nnet)
    for key, example in read_table("ark:valid.egs", "example"):
        prob.compute(example)
    prob.print_total_stats(print)

Source: Kaldi's `nnet3/nnet-diagnostics.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...framework.base.backend import Place
from ...framework.base.options.option_fields import option
from ...framework.base.sequence import bincount, repeated
from ...kaldi.files.sparse import GeneralMatrix, SparseMatrix, to_dense
from ..cache.computers import ComputerCache
from ..files.examples import NnetExample
from ..network.nnet import Nnet
from ..optimize import OptimizeOptions
from .example_request import example_request
from .progress import Log, number, ratio


@dataclass(frozen=True)
class NnetComputeProbOptions:
    """The values to compute besides the objective.

    Attributes:
        compute_deriv: the plain gradient of the objective by all parameters.
        compute_accuracy, compute_per_dim_accuracy: the share of rows whose largest output is where
            the largest target is, and this for each class.
        store_component_stats: collect statistics of components in the network.
        optimize: passes of the compiler.
    """

    compute_deriv: bool = False
    compute_accuracy: bool = option(True, "Compute accuracy besides the objective")
    compute_per_dim_accuracy: bool = option(False, "Also compute accuracy for each class")
    store_component_stats: bool = False
    optimize: bool | OptimizeOptions = True


@dataclass
class Totals:
    """Sums over examples of one output.

    Attributes:
        weight, objective: of the objective.
        accuracy_weight, correct: weight of all rows, and of the rows that are right; by class in
            `weights` and `corrects`, where these are wanted.
    """

    weight: float = 0.0
    objective: float = 0.0
    accuracy_weight: float = 0.0
    correct: float = 0.0
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0))
    corrects: np.ndarray = field(default_factory=lambda: np.zeros(0))


def objective(
    kind: str, output: np.ndarray, supervision: GeneralMatrix
) -> tuple[float, float, np.ndarray]:
    """Weight, value and derivative of a linear or quadratic objective; see `nnet3.*_objective`."""
    dense = to_dense(supervision)
    if kind == "quadratic":
        deriv = dense - output
        return float(len(output)), -0.5 * float((deriv.astype(np.float64) ** 2).sum()), deriv
    if isinstance(supervision, SparseMatrix):
        rows = repeated(np.arange(len(output)), np.diff(supervision.starts))
        values = supervision.values.astype(np.float64)
        chosen = output[rows, supervision.columns]
        return float(values.sum()), float((values * chosen).sum()), dense
    weight = float(dense.sum(dtype=np.float64))
    return weight, float((dense * output).sum(dtype=np.float64)), dense


def accuracy(
    output: np.ndarray, supervision: GeneralMatrix
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row: its weight, whether the largest output is in the right place, and that place.

    The weight is the sum of the row's targets; the right place is where the largest one stands.
    """
    targets = to_dense(supervision)
    right = targets.argmax(axis=1)
    return targets.sum(axis=1, dtype=np.float64), output.argmax(axis=1) == right, right


class NnetComputeProb:
    """Sums objective and accuracy over examples.

    Args:
        nnet: it must not change meanwhile; statistics are stored in it by `store_statistics`.
    """

    def __init__(
        self,
        nnet: Nnet,
        options: NnetComputeProbOptions | None = None,
        place: Place | None = None,
    ) -> None:
        self.nnet = nnet
        self.options = options or NnetComputeProbOptions()
        self.totals: dict[str, Totals] = {}
        self.deriv = np.zeros(nnet.num_parameters if self.options.compute_deriv else 0)
        self._kinds = {node.name: node.objective for node in nnet.outputs()}
        self._cache = ComputerCache(nnet, place, self.options.optimize)
        self._computers: set[object] = set()

    def compute(self, example: NnetExample) -> None:
        """Add one minibatch.

        Raises:
            FormatError, ShapeError: it does not fit the network.
            NotComputableError: outputs need inputs that it does not have.
        """
        options = self.options
        request = example_request(
            self.nnet, example, options.compute_deriv, options.store_component_stats
        )
        computer = self._cache.computer(request)
        for io in example.io:
            if io.name not in self._kinds:
                computer.accept_input(io.name, to_dense(io.features))
        computer.run()
        for io in example.io:
            if io.name not in self._kinds:
                continue
            output = computer.get_output(io.name)
            weight, value, deriv = objective(self._kinds[io.name], output, io.features)
            totals = self.totals.setdefault(io.name, Totals())
            totals.weight += weight
            totals.objective += value
            if options.compute_accuracy:
                self._add_accuracy(totals, output, io.features)
            if options.compute_deriv:
                computer.accept_input(io.name, deriv)
        if options.compute_deriv:
            computer.run()
            self.deriv += computer.model_derivative()
        if options.store_component_stats:
            computer.store_statistics()

    def _add_accuracy(self, totals: Totals, output: np.ndarray, targets: GeneralMatrix) -> None:
        weights, is_right, right = accuracy(output, targets)
        totals.accuracy_weight += float(weights.sum())
        totals.correct += float(weights[is_right].sum())
        if self.options.compute_per_dim_accuracy:
            dim = output.shape[1]
            if not len(totals.weights):
                totals.weights = np.zeros(dim)
                totals.corrects = np.zeros(dim)
            totals.weights += bincount(right, weights, dim)
            totals.corrects += bincount(right[is_right], weights[is_right], dim)

    def objective_per_frame(self) -> float:
        """The objective of all outputs together, over their weight; -inf where it is not finite."""
        weight = sum(totals.weight for totals in self.totals.values())
        value = ratio(sum(totals.objective for totals in self.totals.values()), weight)
        return value if np.isfinite(value) else float("-inf")

    def accuracy_of(self, output: str = "output") -> float:
        """The share of rows that are right."""
        totals = self.totals[output]
        return ratio(totals.correct, totals.accuracy_weight)

    def print_total_stats(self, log: Log) -> bool:
        """Report as Kaldi does; whether there was anything to compute."""
        for name, totals in self.totals.items():
            what = "log-likelihood" if self._kinds[name] == "linear" else "objective"
            each = number(ratio(totals.objective, totals.weight))
            log(
                f"Overall {what} for '{name}' is {each} per frame, over {number(totals.weight)}"
                " frames."
            )
        for name, totals in self.totals.items():
            if not self.options.compute_accuracy:
                break
            frames = f"per frame, over {number(totals.accuracy_weight)} frames."
            log(f"Overall accuracy for '{name}' is {number(self.accuracy_of(name))} {frames}")
            if len(totals.weights):
                with np.errstate(invalid="ignore", divide="ignore"):
                    each = np.where(totals.weights != 0, totals.corrects / totals.weights, -1.0)
                listed = " ".join(map(number, each.tolist()))
                log(f"Overall per-dim accuracy vector for '{name}' is  [ {listed} ]\n {frames}")
        return any(totals.weight > 0 for totals in self.totals.values())
