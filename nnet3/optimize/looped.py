"""The loop in a computation of many equal segments: from there on it repeats for ever.

Segments of equal length read less and less of the beginning, until the matrices that one segment
takes over from earlier ones equal an earlier segment's, shifted in time. There the list is
cut, the later matrices are handed to the earlier ones, and the run goes back. Source: Kaldi's
OptimizeLoopedComputation (nnet-optimize-utils.cc). That one believes any repeat among few segments.
Here so many segments must follow it as could still read from it, without which chunks shorter than
the context would give loops that close too early.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from ...framework.base.errors import OpscopeError
from ..compiler.command import Command
from ..compiler.computation import Computation
from ..index.indexes import NO_TIME
from .options import OptimizeOptions
from .renumber import renumber

Kind: TypeAlias = tuple[int, int]
"""A number for the rows of a matrix without their time, and the time of its first row."""


def form_loop(computation: Computation, reach: int = 1) -> Computation | None:
    """The computation that ends by going back to a label; None where no segment repeats another.

    Args:
        reach: how many segments further a row may still be read.

    Raises:
        OpscopeError: the segments are not shifted copies of each other.
    """
    commands = computation.commands
    splices = [i for i, c in enumerate(commands) if c.type == "NoOperationPermanent"]
    shift = _shift(computation)
    active, live_out = _active(computation, splices)
    kinds = _kinds(computation)
    lists = [[(*kinds[m], m in live_out) for m in matrices] for matrices in active]
    repeat = _first_repeat(lists[: len(splices) - reach + 1], shift)
    if repeat is None:
        return None
    first, second = repeat
    pairs = [
        (a, b)
        for a, b in zip(active[first], active[second], strict=True)
        if kinds[a][1] != kinds[b][1]
    ]
    for a, b in pairs:
        _check_pair(computation, a, b, shift * (second - first))
    whole = computation.whole_submatrices()
    body = [
        *commands[: splices[first]],
        Command.no_operation_label(),
        *commands[splices[first] : splices[second]],
        *(Command.swap_matrix(whole[a], whole[b]) for a, b in _in_order(pairs)),
        Command.goto_label(splices[first]),
    ]
    return renumber(replace(computation, commands=body), OptimizeOptions.none())


def _shift(computation: Computation) -> int:
    """The time by which the first output of the third segment is later than the second's."""
    segment = 0
    times: dict[int, int] = {}
    for command in computation.commands:
        segment += command.type == "NoOperationMarker"
        if command.type == "ProvideOutput" and segment not in times:
            matrix = computation.matrices[computation.submatrices[command.target].matrix]
            times[segment] = int(matrix.rows_named()[0, 1])
    if 1 not in times or 2 not in times:
        raise OpscopeError("a looped computation wants at least three segments with outputs")
    return times[2] - times[1]


def _active(computation: Computation, splices: list[int]) -> tuple[list[list[int]], set[int]]:
    """For every splice the matrices that are set before it and read after it.

    The second value is live_out: the matrices that the last segment still reads.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, command in enumerate(computation.commands):
        if command.type in ("AllocMatrix", "DeallocMatrix"):
            continue
        zeroing = command.type == "SetConst" and command.alpha == 0
        for matrix in computation.touched(command):
            if not zeroing:
                first.setdefault(matrix, number)
            last[matrix] = number
    matrices = sorted(first)
    active = [[m for m in matrices if first[m] < splice < last[m]] for splice in splices]
    return active, {m for m in matrices if last[m] > splices[-1]}


def _kinds(computation: Computation) -> list[Kind]:
    """The kind of every matrix; matrices that differ in time alone have the same number."""
    numbers: dict[tuple[int, bool, bytes], int] = {}
    kinds = [(0, 0)]
    for matrix in computation.matrices[1:]:
        rows = np.array(matrix.indexes, np.int32).reshape(-1, 3)
        real = rows[:, 1] != NO_TIME
        start = int(rows[real.argmax(), 1]) if real.any() else 0
        rows[real, 1] -= start
        key = matrix.node, matrix.is_deriv, rows.tobytes()
        kinds.append((numbers.setdefault(key, len(numbers) + 1), start))
    return kinds


def _first_repeat(lists: list[list[tuple[int, int, bool]]], shift: int) -> tuple[int, int] | None:
    """The first two splices whose matrices are the same, each shifted by the time between them.

    A matrix may also be the same one, if it is live out of the last segment: all read it.
    """
    for first, before in enumerate(lists):
        for second in range(first + 1, len(lists)):
            later = lists[second]
            time = shift * (second - first)
            if len(before) == len(later) and all(
                a == b and (v - u == time or (u == v and live))
                for (a, u, live), (b, v, _) in zip(before, later, strict=True)
            ):
                return first, second
    return None


def _check_pair(computation: Computation, a: int, b: int, shift: int) -> None:
    one, other = computation.matrices[a], computation.matrices[b]
    times = [m.rows_named()[:, 1][m.rows_named()[:, 1] != NO_TIME] for m in (one, other)]
    same_size = (one.rows, one.cols, one.contiguous) == (other.rows, other.cols, other.contiguous)
    if not same_size or (times[1] - times[0] != shift).any():
        raise OpscopeError(f"matrices m{a} and m{b} of a looped computation do not correspond")


def _in_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs (to, from) so that a matrix is handed on before it takes another.

    Times rise from the one to the other, so there is no circle.
    """
    waiting = dict(pairs)
    givers = {b: a for a, b in pairs}
    ordered: list[tuple[int, int]] = []
    while waiting:
        ready = [a for a in waiting if givers.get(a) not in waiting]
        ordered += [(a, waiting.pop(a)) for a in ready]
    return ordered
