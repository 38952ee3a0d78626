"""The path with the fewest errors, against all paths."""

import numpy as np
import pytest

from opscope.framework.base.errors import ShapeError
from opscope.kaldi.lattices.lattice import ONE, Arc, CompactLattice, Weight
from opscope.speech.scoring.edits import ErrorCounts, alignment
from opscope.speech.scoring.oracle import oracle, path_of

WILD = 3


def random_lattice(random: np.random.Generator) -> CompactLattice:
    """A lattice of 6 states with labels 0 to 4."""
    lattice = CompactLattice(0)
    for _ in range(6):
        lattice.add_state()
    for state in range(5):
        for _ in range(random.integers(1, 4)):
            cost = Weight(float(random.integers(0, 9)))
            target = int(random.integers(state + 1, 6))
            lattice.arcs[state].append(Arc(int(random.integers(5)), cost, target))
    lattice.final[5] = ONE
    lattice.final[int(random.integers(1, 6))] = Weight(1.0)
    return lattice


def all_paths(lattice: CompactLattice) -> list[tuple[float, list[int]]]:
    """Costs and words of all paths."""
    found = []
    stack: list[tuple[int, float, list[int]]] = [(0, 0.0, [])]
    while stack:
        state, cost, words = stack.pop()
        end = lattice.final[state]
        if end is not None:
            found.append((cost + end.cost, words))
        for label, weight, target in lattice.arcs[state]:
            counted = [label] if label not in (0, WILD) else []
            stack.append((target, cost + weight.cost, words + counted))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_no_path_has_fewer_errors(seed: int):
    random = np.random.default_rng(seed)
    lattice = random_lattice(random)
    reference = random.integers(0, 6, random.integers(0, 7)).tolist()
    paths = all_paths(lattice)
    edits = oracle(lattice, reference, {WILD})
    words = [edit.hypothesis for edit in edits if edit.hypothesis is not None]
    counted = [word for word in reference if word not in (0, WILD)]
    assert [edit.reference for edit in edits if edit.reference is not None] == counted

    def errors(path: list[int]) -> int:
        counts = ErrorCounts()
        counts.add(alignment(list(map(str, counted)), list(map(str, path))))
        return counts.errors

    counts = ErrorCounts()
    counts.add(edits)
    assert counts.errors == errors(words) == min(errors(path) for _, path in paths)
    best = path_of(lattice, words, {WILD})
    weights = [arc.weight for group in best.arcs for arc in group]
    costs = sum(w.cost for w in [*weights, *(end for end in best.final if end is not None)])
    assert costs == min(cost for cost, path in paths if path == words)


def test_no_path_at_all():
    with pytest.raises(ShapeError, match="the lattice is empty"):
        oracle(CompactLattice(), [1])
