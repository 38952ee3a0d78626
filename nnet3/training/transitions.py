"""Transition probabilities and priors from alignments.

Source: `TransitionModel::MleUpdate` in Kaldi's `hmm/transition-model.cc`,
`nnet3bin/nnet3-am-train-transitions.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.options.option_fields import option
from ...framework.base.sequence import bincount
from ...kaldi.files.transition_model import TransitionModel
from .progress import Log, number, ratio

_ROUNDS = 3  # of flooring and normalizing


@dataclass(frozen=True)
class TransitionOptions:
    """Kaldi's MleTransitionUpdateConfig."""

    floor: float = option(0.01, "Least probability of a transition", "transition-floor")
    min_count: float = option(
        5.0, "Frames that a state needs to be changed", "transition-min-count"
    )
    share_for_pdfs: bool = option(
        False, "Let states with the same output share their probabilities"
    )


def train_transitions(
    model: TransitionModel, counts: np.ndarray, options: TransitionOptions, log: Log
) -> tuple[float, float]:
    """Set the probabilities of a model to the shares of its transitions.

    Args:
        counts: of each transition, by its number, [transitions + 1].

    Returns:
        By how much the log-probability of the counted transitions rises, and their number.

    Raises:
        ShapeError: with `share_for_pdfs`, states of one output have different numbers of
            transitions.
    """
    transitions = model.transitions()
    first = np.searchsorted(transitions.state, np.arange(1, len(model.tuples) + 2))
    groups: dict[int, list[int]] = {}
    for state, (_, _, *pdfs) in enumerate(model.tuples.tolist()):
        for key in dict.fromkeys(pdfs) if options.share_for_pdfs else (state,):
            groups.setdefault(key, []).append(state)
    log_probs = model.log_probs.copy()
    gain = total = 0.0
    floored = skipped = 0
    for key in sorted(groups):
        members = [np.arange(first[state], first[state + 1]) for state in groups[key]]
        if len({len(ids) for ids in members}) > 1:
            raise ShapeError(f"states of output {key} have different numbers of transitions")
        ids = np.array(members)
        if ids.shape[1] < 2:
            continue
        seen = counts[ids].sum(axis=0)
        total += seen.sum()
        if seen.sum() < options.min_count:
            skipped += 1
            continue
        probs = (seen / seen.sum()).astype(np.float32)
        for _ in range(_ROUNDS):
            probs = np.maximum(probs / probs.sum(), np.float32(options.floor))
        floored += int((probs == np.float32(options.floor)).sum())
        logs = np.log(probs)
        gain += float((seen * (logs - log_probs[ids[0]])).sum())
        log_probs[ids] = logs
    model.log_probs = log_probs
    what = "pdf-ids" if options.share_for_pdfs else "transition-states"
    log(
        f"TransitionModel::Update, objf change is {number(ratio(gain, total))} per frame over"
        f" {number(total)} frames."
    )
    log(
        f"{floored} probabilities floored, {skipped} out of {len(groups)} {what} skipped due to"
        " insuffient data (it is normal to have some skipped.)"
    )
    return gain, total


def output_priors(model: TransitionModel, counts: np.ndarray, floor: float) -> np.ndarray:
    """The share of each output in counts of transitions, at least about `floor`: float64, [pdfs].

    Raises:
        ShapeError: nothing was counted.
    """
    transitions = model.transitions()
    priors = bincount(transitions.pdf[1:], counts[1:], transitions.num_pdfs)
    if not priors.sum() > 0:
        raise ShapeError("there are no alignments to count outputs in")
    priors = np.maximum(priors / priors.sum(), floor)
    return priors / priors.sum()
