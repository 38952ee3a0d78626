"""Random nets with every switch on and off: none changes a number by more than rounding does.

Each net runs with all switches off, which is the reference; with all on; with all but each one; and
with some random sets of them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .switched import KINDS, Kind, Run, switched

SETS = 3
"""Random sets of switches for each net."""


@dataclass
class Agreement:
    """How well the runs of nets of one kind agree.

    Attributes:
        nets: how many there were. runs: of them all.
        largest: the largest relative difference of runs without a switch, by its name; `all on` and
            `random sets` stand for the other runs.
        problems: lines that tell how to see a disagreement again.
    """

    kind: str
    tolerance: float
    nets: int = 0
    runs: int = 0
    largest: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def compare(kind: Kind, count: int, seed: int, *, singly: bool = True) -> Agreement:
    """Run so many nets with the switches of their kind.

    Args:
        singly: whether each switch alone is turned off as well.
    """
    found = Agreement(kind.name, kind.tolerance)
    for number in range(seed, seed + count):
        run = kind.make(number)
        if run is None:
            continue
        found.nets += 1
        wanted = _run(run, ())
        for name, on in _sets(kind, number, singly):
            found.runs += 1
            text = f"{kind.name}, seed {number}, on: {', '.join(sorted(on))}"
            try:
                gap, where = difference(wanted, _run(run, on))
            except Exception as error:
                found.problems.append(f"{text}: {type(error).__name__}: {error}")
                continue
            found.largest[name] = max(found.largest.get(name, 0.0), gap)
            if not gap <= kind.tolerance:
                found.problems.append(f"{text}: {where} differs by {gap:.3g}")
    return found


def _sets(kind: Kind, seed: int, singly: bool) -> list[tuple[str, list[str]]]:
    """Sets of switches, each with the name of its row in the table."""
    rng = np.random.default_rng(seed)
    every = list(kind.switches)
    without = [(name, [other for other in every if other != name]) for name in every]
    some = [("random sets", [name for name in every if rng.random() < 0.5]) for _ in range(SETS)]
    return [("all on", every), *(without if singly else ()), *some]


def _run(run: Run, on: Collection[str]) -> Mapping[str, np.ndarray]:
    with switched(on):
        return {name: np.array(value) for name, value in run(on).items()}


def difference(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> tuple[float, str]:
    """The largest difference, relative to the largest number of its result or 1; and where."""
    assert one.keys() == other.keys(), f"{sorted(one)} and {sorted(other)}"
    worst, where = 0.0, ""
    for name, value in one.items():
        assert value.shape == other[name].shape, f"{name}: {value.shape}, {other[name].shape}"
        if not value.size:
            continue
        scale = max(float(np.abs(value).max()), 1.0)
        gap = float(np.abs(value - other[name]).max()) / scale
        if not gap <= worst:  # NaN is the worst
            worst, where = gap, name
            if np.isnan(gap):
                return np.inf, name
    return worst, where


def table(results: Sequence[Agreement]) -> str:
    """A row for each kind and switch, in Markdown."""
    rows = ["| kind | without | nets | largest difference | tolerance |", "|" + " --- |" * 5]
    for found in results:
        for name, gap in found.largest.items():
            rows.append(
                f"| {found.kind} | {name} | {found.nets} | {gap:.1e} | {found.tolerance:.0e} |"
            )
    return "\n".join(rows)


def main(count: int, seed: int, only: Sequence[str] | None = None) -> int:
    """Compare so many nets of each kind, and print the table; 1 where some differ."""
    results = []
    for kind in KINDS:
        if only and kind.name not in only:
            continue
        begin = time.monotonic()
        results.append(compare(kind, count, seed))
        found = results[-1]
        seconds = time.monotonic() - begin
        print(f"{kind.name}: {found.nets} nets, {found.runs} runs, {seconds:.0f} s", flush=True)
        for line in found.problems:
            print(line, flush=True)
    print(table(results))
    return int(any(found.problems for found in results))
