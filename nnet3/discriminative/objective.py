"""MMI, MPFE and sMBR of one minibatch, and their derivatives.

MMI is the log-probability of the reference alignment less the log-probability of all paths of the
lattice; MPFE and sMBR are the expected number of frames with the reference's phone or pdf.

Source: Kaldi's `nnet3/discriminative-training.cc`, `lat/lattice-functions.cc`; Povey & Woodland
2002, "Minimum phone error and I-smoothing for improved discriminative training"; Gibson & Hain
2006, "Hypothesis spaces for minimum Bayes risk training in large vocabulary speech recognition".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, ShapeError
from ...framework.base.options.option_fields import option
from ...framework.base.sequence import bincount
from ...kaldi.lattices.paths import Arcs, Paths
from ...kaldi.lattices.transition_ids import TransitionIds
from ..chain.arrays import padded
from .supervision import DiscriminativeSupervision

_log = logging.getLogger(__name__)

CRITERIA = ("mmi", "mpfe", "smbr")
_FAILED = -10.0  # the objective of a frame where it cannot be computed
_FLOOR = -20 * np.log(10.0)  # of log-posteriors
_ROUNDING = 1e-3  # by which a log-posterior may be above 0


@dataclass(frozen=True)
class DiscriminativeOptions:
    """Kaldi's DiscriminativeOptions.

    Attributes:
        silence: the phones of `silence_phones`.

    Raises:
        AttributeTypeError: a criterion that is none, or phones that are no numbers.
    """

    criterion: str = option("smbr", "Objective: mmi, mpfe or smbr, as in the examples")
    acoustic_scale: float = option(0.1, "Factor for acoustic log-likelihoods")
    drop_frames: bool = option(
        False, "For MMI: pass over frames whose reference pdf is not in the lattice"
    )
    boost: float = option(0.0, "For boosted MMI: what wrong frames cost less, e.g. 0.1")
    one_silence_class: bool = option(
        False, "For MPFE and sMBR: any silence is right for any other, which lessens insertions"
    )
    silence_phones: str = option("", "Numbers of silence phones, e.g. 1:2:3")
    l2_regularize: float = option(0.0, "L2 regularization of the network's output")
    xent_regularize: float = option(0.0, "Scale of the cross-entropy objective of 'output-xent'")
    accumulate_gradients: bool = option(False, "Log the average gradient of each output")
    accumulate_output: bool = option(False, "Log the average of each output's exponential")
    num_pdfs: int = option(0, "How many outputs there are, for these averages")
    silence: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise AttributeTypeError(
                f"--criterion={self.criterion} is none of {', '.join(CRITERIA)}"
            )
        try:
            phones = tuple(int(word) for word in self.silence_phones.split(":") if word)
        except ValueError:
            raise AttributeTypeError(
                f"--silence-phones={self.silence_phones!r} is no list of numbers like 1:2:3"
            ) from None
        object.__setattr__(self, "silence", phones)


def lattice_arrays(
    supervision: DiscriminativeSupervision, ids: TransitionIds, options: DiscriminativeOptions
) -> dict[str, np.ndarray]:
    """What the objective reads of a supervision, as arrays that variables can hold.

    Returns:
        arcs: int32 [arcs, 4]: source, next state, row of the output, pdf; row and pdf -1: no frame;
            source -1: padding.
        costs: float64 [arcs], of the graph. accuracies: float32 [arcs].
        reference: int32 [rows]: the pdf of each row in the reference.
        weight: float32 [1], of the supervision.

    Raises:
        ShapeError: a transition-id that the model lacks.
    """
    arcs = Arcs.of(supervision.lattice)
    alignment = supervision.alignment
    for numbers, least in ((arcs.ids, 0), (alignment, 1)):
        low, high = int(numbers.min()), int(numbers.max())
        if low < least or high > ids.count:
            raise ShapeError(
                f"{low if low < least else high} is no transition-id of the model, which has 1 to"
                f" {ids.count}: do the examples belong to it?"
            )
    phones, pdfs = np.array(ids.phone), np.array(ids.pdf)
    real = arcs.ids > 0
    frame = np.where(real, arcs.frame, 0)
    reference = alignment[frame]
    silent = np.isin(phones, options.silence)
    right = ids.right(
        arcs.ids,
        reference,
        by_phone=options.criterion == "mpfe",
        silence=options.silence,
        one_silence_class=options.one_silence_class,
    )
    costs = arcs.cost.copy()
    if options.criterion == "mmi" and options.boost:
        wrong = phones[arcs.ids] != phones[reference]
        costs[real & wrong & ~silent[arcs.ids]] -= options.boost
    row_of_frame = supervision.row_of_frame
    rows = np.where(real, row_of_frame[frame], -1)
    columns = (arcs.source, arcs.target, rows, np.where(real, pdfs[arcs.ids], -1))
    of_row = np.empty(supervision.rows, np.int32)
    of_row[row_of_frame] = pdfs[alignment]
    return {
        "arcs": padded(np.stack(columns, axis=1).astype(np.int32), -1),
        "costs": padded(costs, 0),
        "accuracies": padded((real & right).astype(np.float32), 0),
        "reference": of_row,
        "weight": np.array([supervision.weight], np.float32),
    }


@dataclass
class DiscriminativeObjective:
    """The result for one output.

    Attributes:
        objective: times the weight. l2_term: what l2 regularization adds.
        weight: of all frames.
        numerator, denominator: sums of the posteriors above and below 0, which the derivative is
            made of.
        deriv: with respect to the output, without the acoustic scale, as in Kaldi, [rows, pdfs].
        xent_deriv: the reference times the weight: the targets of the cross-entropy output, [rows,
            pdfs]; None if not wanted.
    """

    objective: float
    l2_term: float
    weight: float
    numerator: float
    denominator: float
    deriv: Any
    xent_deriv: Any | None = None

    @property
    def totals(self) -> tuple[float, ...]:
        """All numbers of it."""
        return self.weight, self.objective, self.l2_term, self.numerator, self.denominator


def discriminative_objective(
    options: DiscriminativeOptions,
    supervision: Mapping[str, np.ndarray],
    output: Any,
    log_priors: np.ndarray,
    *,
    xent: bool = False,
    xp: Any = np,
) -> DiscriminativeObjective:
    """The objective function of an output, and its derivatives.

    Args:
        options: criterion and scales; silence and boost are in the supervision.
        supervision: of the minibatch; see `lattice_arrays`.
        output: of the network, [rows, pdfs]: log-posteriors where there are priors.
        log_priors: of the pdfs, [pdfs], or none, [0].
        xent: whether the derivative of the cross-entropy is wanted.
        xp: NumPy or CuPy; the paths themselves are gone through on the CPU.

    Raises:
        ShapeError: `output` does not fit supervision or priors, or is above 0 where there are
            priors.
    """
    rows, pdfs = output.shape
    reference = supervision["reference"]
    arcs = supervision["arcs"]
    arcs = arcs[: np.count_nonzero(arcs[:, 0] >= 0)].astype(np.int64)
    _check(rows, pdfs, reference, arcs, log_priors)
    weight = float(supervision["weight"][0])
    source, target, row, pdf = arcs.T
    real = np.flatnonzero(row >= 0)
    known = _Likelihoods(options, output, log_priors, xp)
    score = -supervision["costs"][: len(arcs)]
    score[real] += known(row[real], pdf[real])
    paths = Paths(source, target)
    frames = np.arange(rows)
    keys = row[real] * pdfs + pdf[real]
    places, place = np.unique(keys, return_inverse=True)
    if options.criterion == "mmi":
        total, shares = paths.posteriors(score)
        objective = float(known(frames, reference).sum()) - total
        places, values = _against_reference(
            places, bincount(place, shares[real], len(places)), reference, pdfs, options
        )
    else:
        accuracy = supervision["accuracies"][: len(arcs)].astype(np.float64)
        objective, gains = paths.accuracies(score, accuracy)
        values = bincount(place, gains[real], len(places))
    result = DiscriminativeObjective(
        weight * objective,
        0.0,
        weight * rows,
        float(values[values > 0].sum()),
        -float(values[values < 0].sum()),
        xp.zeros_like(output),
    )
    if np.isfinite(result.objective):
        scaled = xp.asarray((weight * values).astype(output.dtype))
        result.deriv[xp.asarray(places // pdfs), xp.asarray(places % pdfs)] = scaled
    else:
        _log.warning("the objective is %g; taking %g for each frame", result.objective, _FAILED)
        result.objective = _FAILED * result.weight
    if xent:
        wanted = xp.zeros_like(output)
        wanted[xp.asarray(frames), xp.asarray(reference)] = weight
        result.xent_deriv = wanted
    if options.l2_regularize:
        scale = weight * options.l2_regularize
        result.l2_term = -0.5 * scale * float(xp.vdot(output, output))
        result.deriv -= output.dtype.type(scale) * output
    return result


def _check(
    rows: int, pdfs: int, reference: np.ndarray, arcs: np.ndarray, log_priors: np.ndarray
) -> None:
    if len(reference) != rows or (len(arcs) and arcs[:, 2].max() >= rows):
        raise ShapeError(f"a supervision of {len(reference)} rows for an output of {rows}")
    most = max(int(reference.max(initial=-1)), int(arcs[:, 3].max(initial=-1)))
    if most >= pdfs:
        raise ShapeError(f"the supervision has the pdf {most}, the network's output {pdfs} columns")
    if len(log_priors) not in (0, pdfs):
        raise ShapeError(f"{len(log_priors)} priors for an output of {pdfs} columns")


class _Likelihoods:
    """Scaled log-likelihoods of rows and pdfs, float64."""

    def __init__(
        self, options: DiscriminativeOptions, output: Any, log_priors: np.ndarray, xp: Any
    ) -> None:
        self.options = options
        self.output = output
        self.log_priors = log_priors
        self.xp = xp

    def __call__(self, rows: np.ndarray, pdfs: np.ndarray) -> np.ndarray:
        taken = self.output[self.xp.asarray(rows), self.xp.asarray(pdfs)]
        logs = (taken if self.xp is np else taken.get()).astype(np.float64)
        below = logs < _FLOOR
        if below.any():
            _log.warning("floored %d probabilities of the network", np.count_nonzero(below))
            logs = np.maximum(logs, _FLOOR)
        if len(self.log_priors):
            if logs.max(initial=0) > _ROUNDING:
                raise ShapeError(
                    f"the network's output is {logs.max():g}, but a model with priors gives"
                    " logarithms of probabilities, which are not above 0"
                )
            logs = logs - self.log_priors[pdfs]
        return logs * self.options.acoustic_scale


def _against_reference(
    places: np.ndarray,
    shares: np.ndarray,
    reference: np.ndarray,
    pdfs: int,
    options: DiscriminativeOptions,
) -> tuple[np.ndarray, np.ndarray]:
    """The reference less the posteriors at `places`, numbers row * pdfs + pdf; where and what."""
    wanted = np.arange(len(reference)) * pdfs + reference
    together = np.union1d(places, wanted)
    values = np.zeros(len(together))
    values[np.searchsorted(together, places)] -= shares
    values[np.searchsorted(together, wanted)] += 1.0
    if options.drop_frames:
        met = np.isin(wanted, places[shares != 0])
        values[~met[together // pdfs]] = 0.0
    return together, values
