"""Random transducers, what relation they stand for, and kaldifst to compare them with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from opscope.kaldi.fst.algorithms.acceptors import connect
from opscope.kaldi.fst.fst import Fst
from opscope.nnet3.programs.base.graphs import open_fst, save_fst

Relation = dict[tuple[tuple[int, ...], tuple[int, ...]], float]
"""Weights by the labels of a path, input and output."""


def random_transducer(
    rng: np.random.Generator, states: int = 6, arcs: int = 12, labels: int = 3, loops: bool = False
) -> Fst:
    """Every state is on a path; arcs lead forward unless there are to be loops."""
    while True:
        source, target = rng.integers(0, states, (2, arcs))
        if not loops:
            source, target = np.sort((source, target), axis=0)
            target += source == target
            states = max(states, int(target.max()) + 1)
        ilabel, olabel = rng.integers(0, labels + 1, (2, arcs))
        weight = rng.integers(0, 8, arcs).astype(np.float32) / 4
        final = np.where(rng.random(states) < 0.4, rng.integers(0, 8, states) / 4, np.inf)
        fst = connect(Fst.of_arcs(source, ilabel, weight, target, final, olabel))
        if fst.states > 3 and len(fst.arcs) > 5:
            return fst


def relation(fst: Fst, log: bool = False, steps: int = 12) -> Relation:
    """The best weight, or the logarithm of the sum, of each pair of sequences of labels, of the
    paths of at most so many arcs."""
    plus = np.logaddexp if log else max
    found: dict[Any, float] = defaultdict(lambda: -np.inf)
    here: dict[Any, float] = {(fst.start, (), ()): 0.0} if fst.start >= 0 else {}
    for _ in range(steps + 1):
        following: dict[Any, float] = defaultdict(lambda: -np.inf)
        for (state, inputs, outputs), weight in here.items():
            if not np.isinf(fst.final[state]):
                key = inputs, outputs
                found[key] = plus(found[key], weight - float(fst.final[state]))
            for ilabel, olabel, cost, target in fst.arcs[
                fst.begin[state] : fst.begin[state + 1]
            ].tolist():
                key = (
                    target,
                    inputs + (ilabel,) * bool(ilabel),
                    outputs + (olabel,) * bool(olabel),
                )
                following[key] = plus(following[key], weight - cost)
        here = following
    return {key: -weight for key, weight in found.items()}


def assert_same_relation(one: Fst, other: Fst, log: bool = False, tolerance: float = 1e-3) -> None:
    found, wanted = relation(one, log), relation(other, log)
    assert found.keys() == wanted.keys() and wanted
    for key, weight in wanted.items():
        assert abs(found[key] - weight) <= tolerance, key


def rows(fst: Fst) -> list[tuple[float, ...]]:
    """The arcs in order, with the states that they leave."""
    columns = fst.source(), fst.nextstate, fst.ilabel, fst.olabel, np.round(fst.weight, 4)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def through(folder: Path, kaldifst: Any, fst: Fst, change: Callable[[Any], Any]) -> Fst:
    """What kaldifst makes of an FST, returned or in its place."""
    path = str(folder / "theirs.fst")
    save_fst(fst, path)
    theirs = kaldifst.StdVectorFst.read(path)
    made = change(theirs)
    (made if hasattr(made, "write") else theirs).write(path)
    return open_fst(path)
