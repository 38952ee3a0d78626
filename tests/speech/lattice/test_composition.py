"""Lattices composed with language models: against sums over enumerated paths."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.kaldi.lattices.lattice import Arc, CompactLattice, Weight
from opscope.speech.language_model.automaton import Automaton, Both, Histories, Scaled
from opscope.speech.lattice.composition import ComposeOptions, composed_pruned
from opscope.speech.lattice.rescoring import rescored
from speech_lattices import paths

ALL = ComposeOptions(lattice_compose_beam=1e6, max_arcs=10**6)


class Pairs(Automaton):
    """A cost for each word after another, and none for some."""

    def __init__(self, seed: int, words: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.costs = np.round(rng.normal(size=(words, words)), 3).astype(np.float32)
        self.costs[rng.random((words, words)) < 0.05] = np.inf
        self._histories = Histories((0,))

    def arc(self, state: int, word: int) -> tuple[int, float] | None:
        cost = float(self.costs[self._histories[state][0], word])
        return None if cost == math.inf else (self._histories.state((word,)), cost)

    def final(self, state: int) -> float:
        return float(self.costs[self._histories[state][0], 0])

    def cost(self, words: tuple[int, ...]) -> float:
        return sum(self.costs[pair] for pair in zip((0, *words), (*words, 0), strict=True))


def random_lattice(seed: int, words: int) -> CompactLattice:
    rng = np.random.default_rng(seed)
    lattice = CompactLattice(0)
    for _ in range(8):
        lattice.add_state()
    for state in range(7):
        for label in rng.permutation(words)[:3].tolist():
            target = min(state + int(rng.integers(1, 3)), 7)
            weight = Weight(float(rng.integers(9)), float(rng.integers(9)), (state + 1,))
            lattice.arcs[state].append(Arc(label, weight, target))
    lattice.final[7] = Weight(0.5, 0.25, (9,))
    return lattice


def best_of(lattice: CompactLattice, *models: tuple[float, Pairs]) -> dict[tuple, float]:
    """The least cost of each sequence of words."""
    best: dict[tuple, float] = {}
    for (words, _), (graph, acoustic) in paths(lattice).items():
        cost = graph + acoustic + sum(scale * model.cost(words) for scale, model in models)
        if cost < math.inf:
            best[words] = min(best.get(words, math.inf), cost)
    return best


def assert_costs(found: dict[tuple, float], wanted: dict[tuple, float]) -> None:
    assert found.keys() == wanted.keys() and len(wanted) > 5
    for words, cost in wanted.items():
        assert found[words] == pytest.approx(cost, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_costs_are_added(seed: int, scale: float) -> None:
    lattice, model = random_lattice(seed, 6), Pairs(seed, 6)
    made = rescored(lattice, model, scale)
    assert made is not None
    found = best_of(made)
    assert found.keys() == best_of(lattice, (scale, model)).keys()
    # Where several paths have the same words, the best one by the costs over the scale is kept.
    if scale == 1:
        assert_costs(found, best_of(lattice, (1.0, model)))


@pytest.mark.parametrize("seed", range(4))
def test_all_of_a_pruned_composition(seed: int) -> None:
    lattice, old, new = random_lattice(seed, 6), Pairs(seed, 6), Pairs(seed + 9, 6)
    both = Both(Scaled(old, -0.5), Scaled(new, 0.5))
    wanted = {
        words: cost
        for words, cost in best_of(lattice, (0.5, new)).items()
        if old.cost(words) < math.inf
    }
    wanted = {words: cost - 0.5 * old.cost(words) for words, cost in wanted.items()}
    assert_costs(best_of(composed_pruned(lattice, both, ALL)), wanted)


@pytest.mark.parametrize("seed", range(4))
def test_limits_keep_good_paths(seed: int) -> None:
    lattice, model = random_lattice(seed, 6), Pairs(seed, 6)
    wanted = best_of(lattice, (1.0, model))
    narrow = best_of(composed_pruned(lattice, model, ComposeOptions(lattice_compose_beam=0.5)))
    few = best_of(composed_pruned(lattice, model, ComposeOptions(max_arcs=10)))
    for found in (narrow, few):
        assert 0 < len(found) < len(wanted)
        assert min(found.values()) <= min(wanted.values()) + 2
        for words, cost in found.items():
            assert cost >= wanted[words] - 1e-4


def test_nothing() -> None:
    model = Pairs(0, 6)
    model.costs[:] = np.inf
    assert rescored(random_lattice(0, 6), model) is None
    assert composed_pruned(random_lattice(0, 6), model, ALL).states == 0
    assert composed_pruned(CompactLattice(), model, ALL).states == 0
    with pytest.raises(OpscopeError, match="lattice_compose_beam=0"):
        ComposeOptions(lattice_compose_beam=0)
