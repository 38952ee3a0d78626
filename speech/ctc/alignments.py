"""Costs of texts with all of their alignments, as training and prefix beam search have them.

Source: Graves et al. 2006, the forward variables of CTC.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kaldi.lattices.lattice import CompactLattice, Weight
from ..lattice.best_paths import n_best
from ..lattice.times import single_path
from .topology import CtcTopology


def summed(
    lattice: CompactLattice, loglikes: np.ndarray, topology: CtcTopology, most: int
) -> CompactLattice:
    """The best paths of a lattice side by side, each with the acoustic cost of all alignments of
    its tokens.

    Args:
        lattice: with a path for each text. loglikes: of the frames, [frames, tokens].
        most: paths that are kept.
    """
    paths = n_best(lattice, most)
    known = topology.transitions
    tokens = []
    for path in paths:
        ids = [number for arc in single_path(path) for number in arc.weight.ids]
        ids += path.final[-1].ids if path.final[-1] is not None else ()
        blank = int(topology.token[1])
        first = (known.pdf[number] for number in ids if known.is_last[number])
        tokens.append([token for token in first if token != blank])
    costs = costs_of(loglikes, tokens, int(topology.token[1])).tolist()
    union = CompactLattice(0)
    union.add_state()
    for path, cost in zip(paths, costs, strict=True):
        number = [0, *(union.add_state() for _ in range(path.states - 1))]
        arcs = [group[0] for group in path.arcs if group]
        end = path.final[-1] or Weight()
        known_cost = sum(arc.weight.acoustic for arc in arcs) + end.acoustic
        for state, arc in enumerate(arcs):
            union.arcs[number[state]].append(arc._replace(target=number[state + 1]))
        union.final[number[-1]] = end._replace(
            acoustic=float(np.float32(end.acoustic + cost - known_cost))
        )
    return union


def costs_of(loglikes: np.ndarray, texts: Sequence[Sequence[int]], blank: int) -> np.ndarray:
    """-log of the probability that frames have the tokens of each text: float64, [texts].

    Args:
        loglikes: [frames, tokens].
    """
    longest = max(map(len, texts), default=0)
    states = np.full((len(texts), 2 * longest + 1), blank)
    for row, text in zip(states, texts, strict=True):
        row[1 : 2 * len(text) : 2] = text
    last = 2 * np.array([len(text) for text in texts], np.int64)
    # A token may follow another one at once, where it is another one.
    skips = np.zeros(states.shape, bool)
    skips[:, 3::2] = states[:, 3::2] != states[:, 1:-2:2]
    with np.errstate(divide="ignore"):
        forward = np.where(np.arange(states.shape[1]) == 0, 0.0, -np.inf) + np.zeros(states.shape)
        for at, row in enumerate(loglikes.astype(np.float64)):
            moved = forward.copy()
            if at:
                moved[:, 1:] = np.logaddexp(moved[:, 1:], forward[:, :-1])
                skipped = np.where(skips[:, 2:], forward[:, :-2], -np.inf)
                moved[:, 2:] = np.logaddexp(moved[:, 2:], skipped)
            else:
                moved[:, 1:2] = forward[:, :1]
            forward = moved + row[states]
    rows = np.arange(len(texts))
    ends = forward[rows, last]
    return -np.logaddexp(ends, np.where(last > 0, forward[rows, last - 1], -np.inf))
