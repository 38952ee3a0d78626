"""MMI, MPFE and sMBR: as the objective of a trainer, and of a network on examples.

    model = AmNnetSimple.read("final.mdl")
    options = DiscriminativeOptions(criterion="smbr", silence_phones="1:2")
    objectives = DiscriminativeObjectives(options, ids, model.priors)
    trainer = NnetTrainer(NnetTrainerOptions(), model.nnet, objective=objectives)

Source: Kaldi's `nnet3/nnet-discriminative-training.cc`, `nnet3/nnet-discriminative-diagnostics.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ...framework.base.backend import Place
from ...framework.base.errors import ShapeError
from ...framework.base.scope import Scope
from ...framework.ir.op_list import VarDecl
from ...kaldi.files.sparse import to_dense
from ...kaldi.lattices.transition_ids import TransitionIds
from ..cache.computers import ComputerCache
from ..discriminative.examples import NnetDiscriminativeExample, NnetDiscriminativeSupervision
from ..discriminative.objective import (
    DiscriminativeObjective,
    DiscriminativeOptions,
    discriminative_objective,
    lattice_arrays,
)
from ..network.nnet import Nnet
from ..optimize import OptimizeOptions
from .chain_request import XENT, chain_request
from .objectives import Outcome
from .progress import Log, ObjectiveInfo, number, ratio
from .sequence_objectives import TOTALS, SequenceObjectives, Slots

_SUPERVISION: Slots = {
    "arcs": ((-1, 4), "int32"),
    "costs": ((-1,), "float64"),
    "accuracies": ((-1,), "float32"),
    "reference": ((-1,), "int32"),
    "weight": ((1,), "float32"),
}
_ATTRIBUTES = ("criterion", "acoustic_scale", "drop_frames", "l2_regularize", "xent_regularize")


def log_priors_of(priors: np.ndarray) -> np.ndarray:
    """Logarithms of a model's priors; none, [0], where it has none.

    Raises:
        ShapeError: a prior is no probability above 0.
    """
    if len(priors) and not (priors.min() > 0 and priors.max() <= 1):
        raise ShapeError(
            f"priors from {priors.min():g} to {priors.max():g}: want probabilities above 0"
        )
    return np.log(priors.astype(np.float32))


@dataclass
class _Sums:
    """Sums over minibatches of `DiscriminativeObjective.totals` of one output."""

    weight: float = 0.0
    objective: float = 0.0
    l2_term: float = 0.0
    numerator: float = 0.0
    denominator: float = 0.0

    def add(self, *totals: float) -> None:
        for each, value in zip(fields(self), totals, strict=False):  # cross-entropy has two alone
            setattr(self, each.name, getattr(self, each.name) + value)

    @property
    def posterior(self) -> float:
        """What the derivative is made of, for each frame."""
        return ratio(self.numerator + self.denominator, self.weight)


class DiscriminativeObjectives(SequenceObjectives):
    """The objective of each output that has an example's supervision; see `Objective`.

    Args:
        options: settings of the objective.
        ids: of the transition model.
        priors: of the pdfs, [pdfs], or none, [0].
        apply_deriv_weights: whether the examples' weights of derivatives count.

    Raises:
        ShapeError: a prior is no probability.
    """

    operator = "nnet3.discriminative_objective"
    totals = 5

    def __init__(
        self,
        options: DiscriminativeOptions,
        ids: TransitionIds,
        priors: np.ndarray,
        apply_deriv_weights: bool = True,
    ) -> None:
        common = {"log_priors": log_priors_of(priors)}
        super().__init__(options.xent_regularize, common, apply_deriv_weights)
        self.options = options
        self._ids = ids
        self._sums: dict[str, _Sums] = {}

    def attributes(self) -> Mapping[str, Any]:
        """See `SequenceObjectives`."""
        return {name: getattr(self.options, name) for name in _ATTRIBUTES}

    def slots(self, deriv: VarDecl) -> Slots:
        """See `SequenceObjectives`."""
        return _SUPERVISION

    def arrays(
        self, example: NnetDiscriminativeExample, output: NnetDiscriminativeSupervision
    ) -> dict[str, np.ndarray]:
        """See `SequenceObjectives`."""
        return lattice_arrays(output.supervision, self._ids, self.options)

    def outcomes(self, scope: Scope) -> Iterator[Outcome]:
        """See `Objective`. Regularization is reported at the end alone."""
        for name in scope.names():
            if name.startswith(TOTALS):
                totals = scope.numpy(name).tolist()
                output = name.removeprefix(TOTALS)
                self._sums.setdefault(output, _Sums()).add(*totals)
                yield Outcome(output, totals[0], totals[1])

    def total_lines(self, name: str, info: ObjectiveInfo) -> list[str]:
        """See `Objective`."""
        sums = self._sums.get(name, _Sums())
        frames = number(info.weight)
        each = number(ratio(info.objective, info.weight))
        lines = [
            f"Average num+den count of stats is {number(sums.posterior)} per frame, over"
            f" {frames} frames."
        ]
        if sums.l2_term:
            l2 = number(ratio(sums.l2_term, sums.weight))
            lines.append(f"Average l2 norm of output per frame is {l2} over {frames} frames.")
        return [
            *lines,
            f"Overall average objective function for '{name}' is {each} over {frames} frames.",
            f"[this line is to be parsed by a script:] {self.options.criterion}-per-frame={each}",
        ]


class NnetDiscriminativeComputeObjf:
    """Sums the objective over examples. Their weights of derivatives do not matter here.

    Args:
        nnet: it must not change meanwhile.
        options, ids, priors: see `DiscriminativeObjectives`.
        place: where to compute; the CPU by default.
        optimize: passes of the compiler.

    Raises:
        ShapeError: a prior is no probability.
    """

    def __init__(
        self,
        nnet: Nnet,
        options: DiscriminativeOptions,
        ids: TransitionIds,
        priors: np.ndarray,
        place: Place | None = None,
        optimize: bool | OptimizeOptions = True,
    ) -> None:
        self.nnet = nnet
        self.options = options
        self.sums: dict[str, _Sums] = {}
        self.averages: dict[str, dict[str, np.ndarray]] = {}  # by output and what is averaged
        self._ids = ids
        self._log_priors = log_priors_of(priors)
        self._cache = ComputerCache(nnet, place, optimize)

    def compute(self, example: NnetDiscriminativeExample) -> None:
        """Add one minibatch.

        Raises:
            FormatError, ShapeError: it does not fit the network or the transition model.
            NotComputableError: outputs need inputs that it does not have.
        """
        xent = self.options.xent_regularize != 0
        computer = self._cache.computer(chain_request(self.nnet, example, xent=xent))
        for io in example.inputs:
            computer.accept_input(io.name, to_dense(io.features))
        computer.run()
        for output in example.outputs:
            arrays = lattice_arrays(output.supervision, self._ids, self.options)
            logs = computer.get_output(output.name)
            result = discriminative_objective(
                self.options, arrays, logs, self._log_priors, xent=xent
            )
            self.sums.setdefault(output.name, _Sums()).add(*result.totals)
            self._accumulate(output.name, logs, result)
            if xent:
                logs = computer.get_output(output.name + XENT)
                cross_entropy = float(np.vdot(logs, result.xent_deriv))
                sums = self.sums.setdefault(output.name + XENT, _Sums())
                sums.add(result.weight, cross_entropy)

    def _accumulate(self, name: str, logs: np.ndarray, result: DiscriminativeObjective) -> None:
        options = self.options
        if not options.num_pdfs or not (options.accumulate_gradients or options.accumulate_output):
            return
        if options.num_pdfs != logs.shape[1]:
            raise ShapeError(
                f"--num-pdfs={options.num_pdfs}, but {name!r} has {logs.shape[1]} columns"
            )
        averages = self.averages.setdefault(name, {})
        for wanted, what, value in (
            (
                options.accumulate_gradients,
                "Vector of average gradients wrt output activations",
                result.deriv,
            ),
            (options.accumulate_output, "Average DNN output", np.exp(logs.astype(np.float64))),
        ):
            if wanted:
                averages[what] = averages.get(what, 0.0) + value.sum(axis=0, dtype=np.float64)

    def print_total_stats(self, log: Log) -> bool:
        """Report as Kaldi does; whether there was anything to compute."""
        criterion = self.options.criterion
        for name, sums in self.sums.items():
            frames = number(sums.weight)
            objective = number(ratio(sums.objective, sums.weight))
            posterior = number(sums.posterior)
            log(
                f"Average num+den count of {criterion.upper()} stats is {posterior} per frame, over"
                f" {frames} frames"
            )
            log(
                f"{criterion.upper()} objective function is {objective} per frame, over {frames}"
                " frames."
            )
            for what, total in self.averages.get(name, {}).items():
                listed = " ".join(map(number, (total / sums.weight).tolist()))
                log(f"{what} is: \n [ {listed} ]")
            each = objective
            if sums.l2_term:
                each += f" + {number(ratio(sums.l2_term, sums.weight))}"
            log(
                f"Overall {criterion} objective for '{name}' is {each} per frame, over {frames}"
                " frames."
            )
        return any(sums.weight > 0 for sums in self.sums.values())
