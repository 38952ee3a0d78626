"""Networks of one structure: combined over held-out examples, compared.

Source: Kaldi's `nnet3bin/nnet3-combine.cc`, `nnet3-show-progress.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ...framework.base.errors import AttributeTypeError, ShapeError
from ..components.batch_norm import BatchNormComponent
from ..files.examples import NnetExample
from ..network import adjust
from ..network.averaging import average
from ..network.nnet import Nnet
from .compute_prob import NnetComputeProb, NnetComputeProbOptions
from .progress import Log, number
from .update_pass import updatable


class Prob(Protocol):
    """Sums an objective over examples; see `NnetComputeProb`."""

    def compute(self, example: Any) -> None:
        """Add one minibatch."""

    def objective_per_frame(self) -> float:
        """The objective of all outputs together."""
        ...

    def print_total_stats(self, log: Log) -> bool:
        """Report the sums."""
        ...


MakeProb = Callable[[Nnet, bool], Prob]
"""Makes a `Prob` of a network; with True the components collect statistics as well."""


def frame_prob(nnet: Nnet, store_component_stats: bool) -> NnetComputeProb:
    """The linear and quadratic objectives of the output nodes."""
    options = NnetComputeProbOptions(
        compute_accuracy=store_component_stats, store_component_stats=store_component_stats
    )
    return NnetComputeProb(nnet, options)


def recompute_stats(
    examples: Iterable[Any], nnet: Nnet, log: Log, make_prob: MakeProb = frame_prob
) -> None:
    """Collect new statistics of all components, which batch normalization uses in test mode."""
    log("Recomputing stats on nnet (affects batch-norm)")
    for component in nnet.components.values():
        component.zero_stats()
    prob = make_prob(nnet, True)
    for example in examples:
        prob.compute(example)
    prob.print_total_stats(log)
    log("Done recomputing stats.")


def has_batchnorm(nnet: Nnet) -> bool:
    """Whether there is batch normalization in it."""
    return any(isinstance(c, BatchNormComponent) for c in nnet.components.values())


def objective_in_test_mode(
    nnet: Nnet,
    examples: Sequence[Any],
    batchnorm_test_mode: bool = False,
    dropout_test_mode: bool = True,
    make_prob: MakeProb = frame_prob,
) -> float:
    """The objective per frame in test mode."""
    nnet = nnet.copy()
    if batchnorm_test_mode:
        adjust.set_batchnorm_test_mode(nnet, True)
    if dropout_test_mode:
        adjust.set_dropout_test_mode(nnet, True)
    prob = make_prob(nnet, False)
    for example in examples:
        prob.compute(example)
    return prob.objective_per_frame()


def combine(
    nnets: Iterable[Nnet],
    count: int,
    examples: Sequence[Any],
    log: Log,
    max_objective_evaluations: int = 30,
    batchnorm_test_mode: bool = False,
    dropout_test_mode: bool = True,
    stats_examples: Iterable[Any] | None = None,
    make_prob: MakeProb = frame_prob,
) -> Nnet:
    """The mean of the first n networks, with the n whose mean has the best objective.

    Args:
        nnets: the last one first; read one after the other. count: how many there are.
        examples: over which the objective is computed.
        stats_examples: over which statistics are collected at the end, where there is batch
            normalization; by default the same.
        make_prob: what to judge by.

    Raises:
        ShapeError: the networks' structures differ, or there are no examples.
        AttributeTypeError: max_objective_evaluations is not positive.
    """
    if max_objective_evaluations < 1:
        raise AttributeTypeError("max-objective-evaluations must be positive")
    if not examples:
        raise ShapeError("there are no examples over which to combine")
    modes = batchnorm_test_mode, dropout_test_mode, make_prob
    stream = iter(nnets)
    mean = next(stream).copy()
    best = mean.copy()
    used = 1
    first = highest = objective_in_test_mode(mean, examples, *modes)
    log(f"objective function using the last model is {number(first)}")
    every = -(-count // max_objective_evaluations)
    for n, nnet in enumerate(stream, 1):
        adjust.scale(mean, n / (n + 1))
        adjust.add(mean, nnet, 1 / (n + 1))
        if (n - 1) % every == every - 1 or n == count - 1:
            value = objective_in_test_mode(mean, examples, *modes)
            log(f"Combining last {n + 1} models, objective function is {number(value)}")
            if value > highest:
                best = mean.copy()
                used = n + 1
                highest = value
    log(
        f"Combining {used} nnets, objective function changed from {number(first)} to"
        f" {number(highest)}"
    )
    if has_batchnorm(best):
        recompute_stats(stats_examples or examples, best, log, make_prob)
    return best


def by_component(nnet: Nnet, vector: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The dot products of two vectors in the order of `Nnet.vectorize`, component by component."""
    sizes = [component.num_parameters for component in updatable(nnet).values()]
    parts = np.split(vector.astype(np.float64) * other, np.cumsum(sizes)[:-1])
    return np.array([part.sum() for part in parts])


def per_component(nnet: Nnet, values: np.ndarray) -> str:
    """`[ NAME:VALUE ... ]`, as Kaldi prints a number for each updatable component."""
    pairs = zip(updatable(nnet), values.tolist(), strict=True)
    return "[ " + "".join(f"{name}:{number(value)} " for name, value in pairs) + "]"


def show_progress(
    old: Nnet,
    new: Nnet,
    examples: Sequence[NnetExample],
    log: Log,
    num_segments: int = 1,
    options: NnetComputeProbOptions | None = None,
    vlog: Log | None = None,
) -> None:
    """Log how parameters changed, and, with examples, how much of the change of the objective each
    component brought about: the gradient in the middle, times the change.

    Args:
        options: what to compute besides.
        vlog: takes what Kaldi logs with `--verbose=1`.

    Raises:
        ShapeError: the networks have different numbers of parameters.
    """
    if old.num_parameters != new.num_parameters:
        raise ShapeError(
            f"networks of {old.num_parameters} and {new.num_parameters} parameters are not compared"
        )
    before, after = old.vectorize(), new.vectorize()
    chosen = replace(options or NnetComputeProbOptions(), compute_deriv=True)
    if examples:
        gained = np.zeros(len(updatable(old)))
        for segment in range(num_segments):
            middle = (segment + 0.5) / num_segments
            nnet = average((new, old), (middle, 1.0 - middle))
            prob = NnetComputeProb(nnet, chosen)
            for example in examples:
                prob.compute(example)
            totals = prob.totals["output"]
            prob.print_total_stats(log)
            each = number(totals.objective / totals.weight)
            log(f"At position {number(middle)}, objf per frame is {each}")
            change = by_component(nnet, prob.deriv, after - before)
            gained += change / (totals.weight * num_segments)
            if vlog is not None:
                vlog(f"By segment {segment}, objf change is {per_component(old, gained)}")
        log(f"Total objf change per component is {per_component(old, gained)}")
    if vlog is not None:
        difference = old.copy()
        adjust.add(difference, new, -1.0)
        info = difference.info()
        vlog(f"Printing info for the difference between the neural nets: {info}")
    change = np.sqrt(by_component(old, before - after, before - after))
    log(f"Parameter differences per layer are {per_component(old, change)}")
    norms = np.sqrt(by_component(old, before, before)), np.sqrt(by_component(new, after, after))
    log(f"Norms of parameter matrices from <new-nnet-in> are {per_component(new, norms[1])}")
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = change / norms[0]
    log(f"Relative parameter differences per layer are {per_component(old, relative)}")
