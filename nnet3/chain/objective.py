"""The LF-MMI objective of one minibatch and its derivatives.

Source: Kaldi's `chain/chain-training.cc`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from ...framework.base.options.option_fields import option
from .denominator import LIMIT, DenominatorGraph, denominator
from .numerator import numerator
from .supervisions.supervision import Supervision

_log = logging.getLogger(__name__)

FAILED = -10.0  # the objective of a frame where it cannot be computed


@dataclass(frozen=True)
class ChainOptions:
    """Kaldi's ChainTrainingOptions.

    Attributes:
        l2_regularize: half of it times the square of the output is subtracted.
        leaky_hmm_coefficient: what flows at each frame from every state to the initial ones.
        lwf_scale, lwf_den_scale: of the cross-entropy with posteriors of another network, and of
            that less the denominator's log-probability. Source: arXiv 2110.07055.
    """

    l2_regularize: float = option(0.0, "L2 regularization of the network's output")
    out_of_range_regularize: float = option(
        0.01, "How much outputs beyond [-30,30] are pulled back"
    )
    leaky_hmm_coefficient: float = option(1e-5, "Flow from each HMM state to all others")
    xent_regularize: float = option(0.0, "Scale of the cross-entropy objective of 'output-xent'")
    lwf_scale: float = option(0.0, "Learning without forgetting: scale of the examples' posteriors")
    lwf_den_scale: float = option(0.0, "The same, less the denominator's log-probability")

    @property
    def uses_posteriors(self) -> bool:
        """Whether the posteriors of another network count."""
        return self.lwf_scale != 0 or self.lwf_den_scale != 0


@dataclass
class ChainObjective:
    """The result for one output.

    Attributes:
        objective: log-probability of the supervision less the log-probability of all paths, times
            the weight.
        l2_term: what l2 regularization adds.
        weight: of all frames.
        deriv: with respect to the output, [rows, pdfs]; None if not wanted.
        xent_deriv: posteriors of the supervision times the weight: the targets of the
            cross-entropy output, [rows, pdfs]; None if not wanted.
    """

    objective: float
    l2_term: float
    weight: float
    deriv: np.ndarray | None = None
    xent_deriv: np.ndarray | None = None


def chain_objective(
    options: ChainOptions,
    graph: DenominatorGraph,
    supervision: Supervision,
    output: np.ndarray,
    *,
    deriv: bool = True,
    xent: bool = False,
    penalize: bool = False,
    posteriors: np.ndarray | None = None,
) -> ChainObjective:
    """The objective function of an output, and its derivatives where wanted.

    Args:
        options: scales and coefficients.
        graph: the denominator graph.
        supervision: of the minibatch.
        output: of the network, [frames * sequences, pdfs], float32 or float64.
        deriv, xent: which derivatives are wanted.
        penalize: whether outputs out of range are pulled back this time. Training does it at every
            other minibatch, with twice the scale, as Kaldi does.
        posteriors: of another network, [rows, pdfs], for learning without forgetting.

    Raises:
        ShapeError: `output` does not fit the supervision or the graph.
    """
    weight = supervision.weight
    numerator_prob, paths = numerator(supervision, output)
    every = denominator(
        graph,
        output,
        supervision.num_sequences,
        options.leaky_hmm_coefficient,
        posterior=deriv,
    )
    result = ChainObjective(
        weight * (numerator_prob - every.log_prob), 0.0, supervision.total_weight
    )
    if not (np.isfinite(result.objective) and every.consistent):
        _log.warning(
            "the LF-MMI objective is %g and the denominator's posteriors are %s; "
            "taking %g for each frame",
            result.objective,
            "consistent" if every.consistent else "not consistent",
            FAILED,
        )
        result.objective = FAILED * result.weight
        result.deriv = np.zeros_like(output) if deriv else None
        paths[...] = 0
    elif every.posterior is not None:
        found = every.posterior
        if options.lwf_den_scale:
            found *= output.dtype.type(1.0 + options.lwf_den_scale)
        np.subtract(paths, found, out=found)
        found *= output.dtype.type(weight)
        result.deriv = found
    if xent:
        paths *= output.dtype.type(weight)
        result.xent_deriv = paths
    if deriv and penalize and options.out_of_range_regularize:
        scale = output.dtype.type(2.0 * options.out_of_range_regularize)
        result.deriv += scale * (np.clip(output, -LIMIT, LIMIT) - output)
    if deriv and posteriors is not None and options.uses_posteriors:
        scale = output.dtype.type(options.lwf_scale + options.lwf_den_scale)
        result.deriv += scale * posteriors
    if options.l2_regularize:
        scale = weight * options.l2_regularize
        result.l2_term = -0.5 * scale * float(np.vdot(output, output))
        if deriv:
            result.deriv -= output.dtype.type(scale) * output
    return result
