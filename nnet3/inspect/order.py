"""The order of a computation: epochs of nodes, phases of cindexes, steps.

Source: Kaldi's `nnet3/nnet-graph.cc` (ComputeNnetComputationEpochs) and
`nnet3/nnet-computation-graph.cc` (ComputeComputationPhases, ComputationStepsComputer).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...framework.base.errors import FormatError, nearest
from ..compiler.steps import NnetStep, NnetSteps
from ..graph.topology import Topology
from ..index.indexes import format_indexes, format_integers
from ..index.ranges import format_rows
from .cindexes import Exploration


class Epochs:
    """The nodes of each epoch: a node reads nodes of its own or of earlier epochs alone.

    `epochs[2]` are the names of the nodes of epoch 2; an epoch of several nodes is a loop.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def __len__(self) -> int:
        return max(self._topology.epochs, default=-1) + 1

    def __getitem__(self, epoch: int) -> list[str]:
        if not 0 <= epoch < len(self):
            raise IndexError(f"there is no epoch {epoch}; there are {len(self)}")
        pairs = zip(self._topology.nodes, self._topology.epochs, strict=True)
        return [node.name for node, number in pairs if number == epoch]

    def of(self, node: str) -> int:
        """The epoch of a node.

        Raises:
            FormatError: there is none of that name.
        """
        index = self._topology.index
        if node not in index:
            raise FormatError(f"the network has no node '{node}'{nearest(node, index)}")
        return self._topology.epochs[index[node]]

    def __str__(self) -> str:
        lines = []
        for epoch, names in enumerate(self):
            loop = self._topology.in_loop[self._topology.index[names[0]]] if names else False
            lines.append(f"epoch {epoch}  {', '.join(names)}{'  (a loop)' if loop else ''}")
        return "\n".join(lines)

    def __iter__(self) -> Iterator[list[str]]:
        return (self[epoch] for epoch in range(len(self)))

    def to_kaldi(self) -> str:
        """The line of Kaldi's `--verbose=6`."""
        return f"node_to_epoch: {format_integers(np.array(self._topology.epochs))}\n"


class Phases:
    """Sets of cindexes that become computable together; the first one is what is given.

    `phases[3]` has the rows of every node in phase 3: int32 [rows, 3] by name.

    Args:
        exploration: the rows of a request whose outputs can be computed.
    """

    def __init__(self, exploration: Exploration) -> None:
        epochs, nodes = exploration.topology.epochs, exploration.topology.nodes
        places: dict[tuple[int, int], list[list[int]]] = {}
        for number, (group, needed) in enumerate(
            zip(exploration.groups, exploration.needed, strict=True)
        ):
            explorer = group.explorer
            level = explorer.levels(needed)
            for row in needed:
                available = row < explorer.num_available
                place = (0, 0) if available else (1 + epochs[explorer.rows[row][0]], level[row])
                places.setdefault(place, [[] for _ in exploration.groups])[number].append(row)
        order = sorted(places)
        self.epochs = [epoch - 1 for epoch, _ in order]
        """The epoch of each phase; -1 for what is given."""
        self._phases = [
            {nodes[node].name: rows for node, rows in exploration.by_node(places[place]).items()}
            for place in order
        ]

    def __len__(self) -> int:
        return len(self._phases)

    def __getitem__(self, phase: int) -> dict[str, np.ndarray]:
        return self._phases[phase]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return iter(self._phases)

    def __str__(self) -> str:
        lines = []
        for number, (epoch, phase) in enumerate(zip(self.epochs, self._phases, strict=True)):
            where = "given" if epoch < 0 else f"epoch {epoch}"
            listed = "; ".join(f"{name} {format_rows(rows)}" for name, rows in phase.items())
            lines.append(f"phase {number}  {where}  {listed}")
        return "\n".join(lines)

    def to_kaldi(self) -> str:
        """The cindexes of each phase in Kaldi's notation; Kaldi itself prints no phases."""
        lines = []
        for number, phase in enumerate(self._phases):
            listed = "".join(f"{name}{format_indexes(rows)}" for name, rows in phase.items())
            lines.append(f"phase {number}: {listed}")
        return "\n".join(lines) + "\n"


class Steps:
    """The steps of a computation: rows of one node that are computed at once, in order.

    `steps[3]` is an `NnetStep`, with `node` (a number), `indexes`, `is_input`, `source`.
    """

    def __init__(self, steps: NnetSteps) -> None:
        self._steps = steps.steps
        self.topology = steps.topology

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, step: int) -> NnetStep:
        return self._steps[step]

    def __iter__(self) -> Iterator[NnetStep]:
        return iter(self._steps)

    def name(self, step: int) -> str:
        """The name of the node of a step."""
        return self.topology.nodes[self._steps[step].node].name

    def __str__(self) -> str:
        rows = []
        for number, step in enumerate(self._steps):
            node = self.topology.nodes[step.node]
            size = f"{step.columns.size} x {node.dim}"
            kind = node.kind
            if kind == "dim-range":
                first = node.dim_offset
                kind = f"columns {first}:{first + node.dim - 1} of step {step.source}"
            elif step.is_input:
                kind = "given"
            elif node.is_output:
                kind = "output"
            rows.append((f"step {number}", node.name, size, kind, format_rows(step.indexes)))
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
        return "\n".join(
            f"{number:<{widths[0]}}  {name:<{widths[1]}}  {size:>{widths[2]}}  {kind:<{widths[3]}}"
            f"  {listed}".rstrip()
            for number, name, size, kind, listed in rows
        )

    def to_kaldi(self) -> str:
        """The cindexes of each step in Kaldi's notation; Kaldi itself prints no steps."""
        lines = []
        for number, step in enumerate(self._steps):
            shown = format_indexes(step.indexes)
            lines.append(f"step {number}: {self.name(number) if len(step.indexes) else ''}{shown}")
        return "\n".join(lines) + "\n"
