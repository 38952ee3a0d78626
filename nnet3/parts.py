"""Where the rows of a descriptor's step are read from: its input locations.

A part of a descriptor is a sum of rows of earlier steps. Mostly all its rows come from one step;
then the row numbers are all there is to know, and no list of terms for each row is made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..framework.errors import OpscopeError
from .compile_locations import pack_left
from .indexes import Columns, distinct, pack_tx
from .steps import Steps
from .topology import SumFacts


@dataclass
class Terms:
    """Rows that a part adds up, all with one scale.

    Attributes:
        alpha: the scale.
        single: the step that every row takes its one term from; -1 where it is not so simple.
        row: the row in that step, int32 [rows]; else int [rows, terms], -1 where there is none.
        whole: these are all rows of the one step, in order.
        step: where `single` is -1: the step of every term, as `row`.
    """

    alpha: float
    single: int
    row: np.ndarray
    step: np.ndarray | None = None
    whole: bool = False


@dataclass
class Part:
    """A part of a descriptor's step.

    Attributes:
        facts: what is known of the part of the descriptor.
        terms: what is summed up, by scale.
        value, deriv: sub-matrices (the part's columns).
    """

    facts: SumFacts
    terms: list[Terms]
    value: int = 0
    deriv: int = 0

    def sources(self) -> list[int]:
        """The steps that are read."""
        found: set[int] = set()
        for terms in self.terms:
            if terms.single >= 0:
                found.add(terms.single)
            else:
                found.update(distinct(terms.step.ravel()).tolist())  # type: ignore[union-attr]
        return [step for step in found if step >= 0]


def locate(steps: Steps, number: int) -> list[Part]:
    """The parts of a descriptor's step with their locations.

    Raises:
        OpscopeError: a row that is needed is computed by no step.
    """
    step = steps.steps[number]
    topology, columns = steps.topology, step.columns
    fixed, places = topology.steps[step.node], []
    if fixed is None:
        places = topology.dependencies(step.node, columns.t, columns.x)

    def find(leaf: int) -> np.ndarray:
        if fixed is not None:
            rows = steps.find(fixed[leaf][0], columns, *fixed[leaf][1:])
        else:
            node, t, x = places[leaf]
            rows = steps.find_places(node, Columns(columns.n, t, x))
        return rows if columns.real is None else np.where(columns.real, rows, -1)

    parts = []
    for facts in topology.sums[step.node]:
        whole = _whole_step(steps, facts, columns)
        if whole is not None:
            parts.append(Part(facts, [whole]))
            continue
        mine = [find(leaf) for leaf in facts.leaves]
        if not facts.needs_all:
            used: list[np.ndarray] = []
            facts.sums.combine(iter([rows >= 0 for rows in mine]), used)
            mine = [np.where(mask, rows, -1) for mask, rows in zip(used, mine, strict=True)]
        elif columns.real is None and any(rows.min() < 0 for rows in mine):
            raise OpscopeError(f"step {number} reads rows that no step computes")
        if facts.groups is not None:
            begin = facts.leaves.start
            terms = [
                _terms(steps, alpha, [mine[leaf - begin] for leaf in leaves])
                for alpha, leaves in facts.groups
            ]
        else:
            chosen = [places[leaf] for leaf in facts.leaves]
            terms = _terms_by_scale(steps, facts, _sorted_terms(mine, chosen))
        parts.append(Part(facts, terms))
    return parts


def _whole_step(steps: Steps, facts: SumFacts, columns: Columns) -> Terms | None:
    """The one term of a part that is a node without any offset; None where it is not so easy."""
    if facts.alone < 0 or facts.groups is None:
        return None
    single = steps.whole(facts.alone, columns)
    if single < 0:
        return None
    return Terms(facts.groups[0][0], single, np.arange(len(columns), dtype=np.int32), whole=True)


def _terms(steps: Steps, alpha: float, leaves: list[np.ndarray]) -> Terms:
    if len(leaves) == 1:
        rows = leaves[0]
        single = steps.step_of_all(rows)
        if single >= 0:
            return Terms(alpha, single, rows - np.int32(steps.starts[single]))
    return Terms(alpha, -1, *_located(steps, np.stack(leaves, axis=1)))


def _located(steps: Steps, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and step of every term, packed, from rows that are numbered throughout."""
    numbers = np.where(rows >= 0, steps.step_of_row[rows], -1)
    step, row = pack_left(numbers, np.where(rows >= 0, rows - steps.start_array[numbers], -1))
    return row, step


def _terms_by_scale(steps: Steps, facts: SumFacts, rows: np.ndarray) -> list[Terms]:
    """The terms of rows that may be of different nodes, and so have different scales."""
    scales = sorted(set(facts.scales.values()))
    if len(scales) == 1:
        return [Terms(scales[0], -1, *_located(steps, rows))]
    row, step = _located(steps, rows)
    nodes = np.array([s.node for s in steps.steps] + [-1])[step]
    result = []
    for alpha in scales:
        mask = np.isin(nodes, [node for node, scale in facts.scales.items() if scale == alpha])
        kept = pack_left(np.where(mask, step, -1), np.where(mask, row, -1))
        result.append(Terms(alpha, -1, kept[1], kept[0]))
    return result


def _sorted_terms(
    rows: list[np.ndarray], places: list[tuple[object, np.ndarray, np.ndarray]]
) -> np.ndarray:
    """The terms [rows, terms] of each row in the order of their (node, t, x)."""
    if len(rows) < 2:
        return np.stack(rows, axis=1)
    keys = np.stack(
        [np.broadcast_to(node, t.shape) * (1 << 45) + pack_tx(t, x) for node, t, x in places],  # type: ignore[attr-defined]
        axis=1,
    )
    return np.take_along_axis(np.stack(rows, axis=1), np.argsort(keys, axis=1, kind="stable"), 1)
