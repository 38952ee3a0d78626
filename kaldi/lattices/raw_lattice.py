"""Raw lattices: every arc that a search kept, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RawLattice:
    """An acyclic FST from transition-ids to words, whose states are tokens.

    States are sorted: arcs lead from smaller to larger numbers, and the start is state 0.

    Attributes:
        frame: the frame at which each state stands, int32, [states]: 0 before the first one.
        source, target: states, int32, [arcs]. ilabel: transition-id, 0 for none, int32, [arcs].
        olabel: word, 0 for none, int32, [arcs].
        graph, acoustic: costs, float32, [arcs].
        final: cost of ending in each state, float32, [states]; infinity: it is not final.
    """

    frame: np.ndarray
    source: np.ndarray
    target: np.ndarray
    ilabel: np.ndarray
    olabel: np.ndarray
    graph: np.ndarray
    acoustic: np.ndarray
    final: np.ndarray
