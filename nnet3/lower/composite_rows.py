"""Composite components take chunks of rows, as in Kaldi.

Kaldi bounds the memory of a CompositeComponent: it runs all inner components forward and backward
for `max_rows_process` rows, then for the next chunk of rows. The plan bounds memory here, but the
chunks show in the results: natural gradient sees one chunk after the other, and batch normalization
within the component has the statistics of a chunk. So a command for many rows becomes one for each
chunk before it is lowered.

Source: `CompositeComponent::Propagate` and `Backprop` in Kaldi's `nnet3/nnet-simple-component.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..compiler.command import Command
from ..compiler.computation import Computation
from ..components.composite import CompositeComponent

_USES = ("Propagate", "Backprop", "BackpropNoModelUpdate")


def split_composites(computation: Computation) -> tuple[Computation, Sequence[int]]:
    """The same computation with a command of its own for each chunk of a composite's rows.

    Returns:
        The computation, and the number in it of each command of the given one.
    """
    limits = {
        number: node.component.max_rows_process
        for number, node in enumerate(computation.topology.nodes)
        if isinstance(node.component, CompositeComponent) and node.component.max_rows_process > 0
    }
    if not limits or not any(
        _rows(computation, c) > limits[c.node] for c in _uses(computation, limits)
    ):
        return computation, range(len(computation.commands))
    splitter = _Splitter(computation, limits)
    return splitter.result, splitter.places


def _uses(computation: Computation, limits: dict[int, int]) -> Iterator[Command]:
    return (c for c in computation.commands if c.type in _USES and c.node in limits)


def _rows(computation: Computation, c: Command) -> int:
    return computation.submatrices[c.target if c.type == "Propagate" else c.deriv[2]].rows


class _Splitter:
    def __init__(self, computation: Computation, limits: dict[int, int]) -> None:
        self.result = computation.copy()
        self._steps: dict[tuple[int, int], int] = {}  # step, first row -> step of the chunk
        self._next = max((c.step for c in computation.commands), default=0) + 1
        commands: list[Command] = []
        self.places: list[int] = []  # of each command in the new list
        places = self.places
        for c in computation.commands:
            places.append(len(commands))
            most = limits.get(c.node, 0) if c.type in _USES else 0
            rows = _rows(computation, c) if most else 0
            if rows <= most:
                commands.append(c)
                continue
            commands += [
                self._chunk(c, first, min(most, rows - first)) for first in range(0, rows, most)
            ]
        self.result.commands = [
            c.changed(step=places[c.step]) if c.type == "GotoLabel" else c for c in commands
        ]

    def _chunk(self, c: Command, first: int, rows: int) -> Command:
        """The command for some of the rows.

        Its step has a number of its own, by which a backward chunk finds the temporaries of the
        forward one.
        """
        step = self._steps.setdefault((c.step, first), self._next)
        self._next += step == self._next
        part = self.result.new_part
        if c.type == "Propagate":
            source, target = part(c.source, first, rows), part(c.target, first, rows)
            return c.changed(source=source, target=target, step=step)
        derivs = tuple(part(s, first, rows) if s else 0 for s in c.deriv)
        return c.changed(deriv=derivs, step=step)
