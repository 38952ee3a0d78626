"""Memory that must be apart, of many steps and cases at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope.framework.runtime.other_shapes.apart import Apart, numbers_of


def are_apart(groups: Any) -> bool:
    """Whether no two groups overlap, by their first begins and last ends."""
    hulls = [(min(begin for begin, _ in one), max(end for _, end in one)) for one in groups]
    pairs = [(a, b) for n, a in enumerate(hulls) for b in hulls[:n]]
    return all(a[1] <= b[0] or b[1] <= a[0] for a, b in pairs)


@pytest.mark.parametrize("seed", range(4))
def test_memory_of_groups_is_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Of each trace the sets, of each set the groups, of each group the number of its arrays.
    counts = [
        [rng.integers(1, 4, rng.integers(2, 5)).tolist() for _ in range(rng.integers(3))]
        for _ in range(6)
    ]
    cases = []
    for _ in range(40):
        spans = [
            [
                [[(at := int(rng.integers(150)), at + int(rng.integers(1, 9))) for _ in range(n)]
                 for n in groups]
                for groups in sets
            ]
            for sets in counts
        ]  # fmt: skip
        cases.append(spans)
    numbers = np.array([[n for sets in case for n in numbers_of(sets)] for case in cases])
    found = Apart(cases[0]).met(numbers.reshape(len(cases), -1))
    wanted = [[all(map(are_apart, sets)) for sets in case] for case in cases]
    assert found.tolist() == wanted
    assert not found.all()
    assert found.any()


def test_steps_without_such_memory_are_met() -> None:
    assert Apart([[], []]).met(np.zeros((3, 0), np.int64)).tolist() == [[True, True]] * 3
