"""The best states of phones whose first and last frames are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....framework.base.sequence import offsets_of, runs


@dataclass(frozen=True, eq=False)
class Aligned:
    """Attributes:
    scores: of each phone's best path, transitions included; -inf where there is none; [phones].
    states: of each frame of each phone in turn.
    """

    scores: np.ndarray
    states: np.ndarray


def align(
    likelihoods: np.ndarray,
    phones: np.ndarray,
    rows: np.ndarray,
    frames: np.ndarray,
    states: np.ndarray,
    transitions: np.ndarray,
) -> Aligned:
    """Align phones with states, all of them at once, by the algorithm of Viterbi.

    Phones of the same number, row and length are aligned once. Of equally good ways the one from
    the first state is taken.

    Args:
        likelihoods: log likelihoods of the states, float64, [rows, S].
        phones, rows, frames: number of each phone, its first row and length, [phones].
        states, transitions: see `Hmms`.

    Source: CNTK's `SequenceTrainingLib/latticeforwardbackward.cpp` (alignedge).
    """
    width = int(frames.max(initial=0)) + 1
    keys = (phones * (len(likelihoods) + 1) + rows) * width + frames
    _, chosen, which = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(-frames[chosen], kind="stable")  # the first n are those with a frame t
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    chosen = chosen[order]
    which = place[which.reshape(-1)]
    scores, paths = _paths(
        likelihoods,
        rows[chosen],
        frames[chosen],
        states[phones[chosen]],
        transitions[phones[chosen]],
    )
    begin = offsets_of(frames[chosen])[:-1]
    return Aligned(scores[which], paths[runs(begin[which], frames)])


def _paths(
    likelihoods: np.ndarray,
    rows: np.ndarray,
    frames: np.ndarray,
    states: np.ndarray,
    transitions: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Best scores and states of different phones, the longest ones first."""
    enter = transitions[:, 0, :-1]
    leave = transitions[:, 1:, -1]
    move = transitions[:, 1:, :-1]
    steps = int(frames.max(initial=0))
    counts = np.searchsorted(-frames, -np.arange(steps), side="left")  # phones with a frame t
    scores = transitions[:, 0, -1].copy()  # of phones without frames: from the entry to the exit
    if not steps:
        return scores, np.zeros(0, np.int64)
    n = int(counts[0])
    path = enter[:n] + likelihoods[rows[:n, None], states[:n]]
    back: list[np.ndarray] = []
    for t, n in enumerate(counts[1:].tolist(), 1):
        ways = path[:n, :, None] + move[:n]
        back.append(ways.argmax(1).ravel())
        path[:n] = ways.max(1)
        path[:n] += likelihoods[rows[:n, None] + t, states[:n]]
    n = len(path)
    ends = path + leave[:n]
    scores[:n] = ends.max(1)
    # State i of phone p stands at p * most + i: `at` is where each phone is in the present frame.
    base = np.arange(n) * states.shape[1]
    at = base + ends.argmax(1)
    flat = states.ravel()
    begin = offsets_of(frames)[:-1]
    best = np.empty(int(frames.sum()), np.int64)
    for t in range(steps - 1, -1, -1):
        n = int(counts[t])
        best[begin[:n] + t] = flat[at[:n]]
        if t:
            at[:n] = base[:n] + back[t - 1][at[:n]]
    return scores, best
