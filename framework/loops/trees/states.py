"""The states of a forward run over trees: buffers with a row for each node, and initial states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...fusion.rows.row_copies import take_rows
from .binding import TreeBinding
from .forest import ForestSchedule


@dataclass(frozen=True, eq=False)
class StateBuffers:
    """Memory for the states of all nodes, in the order of places.

    Attributes:
        states: state -> [nodes + rows of initial states, ...].
        initial_at: of a net with an arity, the first row of each memory's initial state.
        sums, summands: of a net without one, for each memory: [nodes, ...] sums over the children
            of each node, and what is summed, by edge.
    """

    states: dict[str, Any]
    initial_at: list[int]
    sums: list[Any]
    summands: list[Any]


def bind_states(b: TreeBinding) -> StateBuffers:
    """Memory for the states of a bound operator."""
    tree, nodes = b.tree, b.nodes
    initial_at: list[int] = []
    extra = dict.fromkeys(tree.states, 0)
    for number, memory in enumerate(b.memories):
        if tree.arity:
            initial_at.append(nodes + extra[memory.state])
            extra[memory.state] += b.initial_rows(number)
    # Initial states lie after the nodes' states, so that a missing child is a row like any other.
    states = {name: b.scratch(nodes + rows, b.specs.node[name]) for name, rows in extra.items()}
    sums: list[Any] = []
    summands: list[Any] = []
    for row, dtype in b.specs.rows:
        if not tree.arity:
            sums.append(b.scratch(nodes, ((-1, *row), dtype)))
            summands.append(b.scratch(nodes, ((-1, *row), dtype)))
    return StateBuffers(states, initial_at, sums, summands)


@dataclass(frozen=True, eq=False)
class ForwardIndex:
    """A schedule's index arrays, on the device.

    Attributes:
        rows: [nodes], row outside, by place.
        children: for each memory of a net with an arity, [nodes]: row of the buffer of states with
            the child's state, or with its initial state.
        edge_child: [edges], place of the child. edge_rows: [edges], row outside of the parent.
    """

    schedule: ForestSchedule
    rows: Any
    children: list[Any]
    edge_child: Any
    edge_rows: Any


def forward_index(b: TreeBinding, buffers: StateBuffers, schedule: ForestSchedule) -> ForwardIndex:
    """The index arrays of a schedule."""
    xp = b.xp
    children = []
    for number, memory in enumerate(b.memories if b.tree.arity else ()):
        child = schedule.child(memory.child)
        initial: Any = buffers.initial_at[number]
        if not b.specs.shared_boot[number]:
            initial = initial + schedule.tree
        children.append(xp.asarray(np.where(child < b.nodes, child, initial)))
    return ForwardIndex(
        schedule,
        xp.asarray(schedule.rows),
        children,
        xp.asarray(schedule.edge_child),
        xp.asarray(schedule.rows[schedule.edge_parent]),
    )


def fill_initial_states(b: TreeBinding, buffers: StateBuffers, schedule: ForestSchedule) -> None:
    """Write initial states: after the nodes' states, or as the sums of leaves."""
    leaves = int(schedule.starts[1]) if schedule.heights else 0
    boots = b.k.list("boot")
    for number, memory in enumerate(b.memories):
        initial = memory.boot_value if memory.boot < 0 else boots[memory.boot]
        if b.tree.arity:
            begin = buffers.initial_at[number]
            buffers.states[memory.state][begin : begin + b.initial_rows(number)] = initial
        elif b.specs.shared_boot[number]:
            buffers.sums[number][:leaves] = initial
        else:
            tree = b.xp.asarray(schedule.tree[:leaves])
            take_rows(b.xp, initial, tree, buffers.sums[number][:leaves])


def add_bundles(
    total: Any, summands: Any, first: int, bundles: tuple[tuple[int, int], ...], *, fresh: bool
) -> None:
    """Adds rows of edges to rows of their parents, which begin at `first`; `fresh` ones are set."""
    for number, (begin, end) in enumerate(bundles):
        target = total[first : first + end - begin]
        # The first children reach all parents with children at this height: setting spares a fill
        # with zeros.
        if fresh and number == 0:
            target[...] = summands[begin:end]
        else:
            target += summands[begin:end]
