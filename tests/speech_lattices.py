"""What tests look at in lattices."""

from __future__ import annotations

import numpy as np

from opscope.kaldi.lattices.lattice import CompactLattice


def paths(lattice: CompactLattice) -> dict[tuple, np.ndarray]:
    """Graph and acoustic cost of each path of a small lattice, by its words and transition-ids."""
    found = {}
    stack = [(lattice.start, (), (), 0.0, 0.0)]
    while stack:
        state, words, ids, graph, acoustic = stack.pop()
        end = lattice.final[state]
        if end is not None:
            found[words, ids + end.ids] = np.array([graph + end.graph, acoustic + end.acoustic])
        for label, weight, target in lattice.arcs[state]:
            said = (*words, label) if label else words
            costs = graph + weight.graph, acoustic + weight.acoustic
            stack.append((target, said, ids + weight.ids, *costs))
    return found
