"""Nodes that hold graphs, run on the host: If, Loop, Scan, SequenceMap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .calls import Attributes
from .graph import Graph
from .loop_budget import LoopBudget, held_bytes
from .unrolling import never_ends

_FOREVER = 1 << 62


class RunsGraphs(Protocol):
    """The engine, as far as it is wanted here."""

    constants: dict[str, np.ndarray]
    loops: LoopBudget

    def run_graph(
        self, graph: Graph, inputs: Sequence[Any], env: Mapping[str, Any]
    ) -> list[Any]: ...


def run_control(
    engine: RunsGraphs, n: Attributes, args: Sequence[Any], env: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The outputs of such a node."""
    return tuple(_RUN[n.node.op](engine, n, list(args), env))


def _if(
    engine: RunsGraphs, n: Attributes, args: list[Any], env: Mapping[str, Any]
) -> Sequence[Any]:
    chosen = "then_branch" if bool(np.asarray(args[0]).reshape(-1)[0]) else "else_branch"
    return engine.run_graph(n.graph(chosen), [], env)


def _loop(
    engine: RunsGraphs, n: Attributes, args: list[Any], env: Mapping[str, Any]
) -> Sequence[Any]:
    body = n.graph("body")
    most = _FOREVER if args[0] is None else int(np.asarray(args[0]).reshape(-1)[0])
    goes_on = args[1] is None or bool(np.asarray(args[1]).reshape(-1)[0])
    state = list(args[2:])
    if len(body.inputs) != 2 + len(state) or len(body.outputs) < 1 + len(state):
        n.fail(f"its body takes {len(body.inputs)} inputs and gives {len(body.outputs)} outputs")
    if goes_on and engine.loops.is_beyond(most) and never_ends(body, engine.constants):
        engine.loops.count(most)  # refused before its first round
    rounds = _Rounds(engine, body, env, state, len(body.outputs) - 1 - len(state))
    step = 0
    with engine.loops.loop(args):
        while goes_on and step < most:
            results = rounds.run([np.array(step), np.array(True)], [], 1)
            goes_on = bool(np.asarray(results[0]).reshape(-1)[0])
            step += 1
        return [*rounds.state, *(_stacked(values) for values in rounds.scanned)]


class _Rounds:
    """The rounds of one loop: what they carry on, and what they collect.

    Attributes:
        state: values that a round hands to the next. scanned: what each round gave beside them.
    """

    def __init__(
        self,
        engine: RunsGraphs,
        body: Graph,
        env: Mapping[str, Any],
        state: Sequence[Any],
        outs: int,
    ) -> None:
        self._engine = engine
        self._body = body
        self._env = env
        self.state = list(state)
        self.scanned: list[list[Any]] = [[] for _ in range(outs)]
        self._carried = 0

    def run(self, first: Sequence[Any], last: Sequence[Any], lead: int) -> list[Any]:
        """The outputs of the next round.

        Args:
            first, last: inputs of the body before and after the state.
            lead: outputs before those of the state.
        """
        loops = self._engine.loops
        loops.count()
        results = self._engine.run_graph(self._body, [*first, *self.state, *last], self._env)
        self.state = results[lead : lead + len(self.state)]
        collected = results[lead + len(self.state) :]
        for values, value in zip(self.scanned, collected, strict=True):
            values.append(value)
        carried = held_bytes(self.state)
        loops.hold(carried - self._carried + held_bytes(collected))
        self._carried = carried
        return results


def _stacked(values: list[Any], axis: int = 0) -> np.ndarray:
    return np.stack(values, axis) if values else np.zeros((0,), np.float32)


def _scan(
    engine: RunsGraphs, n: Attributes, args: list[Any], env: Mapping[str, Any]
) -> Sequence[Any]:
    body = n.graph("body")
    count = n.attr("num_scan_inputs", 0)
    if n.version < 9:
        return _scan_of_batches(engine, n, args, env, count)
    states = len(args) - count
    outs = len(body.outputs) - states
    if not 0 < count <= len(args) or len(body.inputs) != len(args) or outs < 0:
        n.fail(f"{len(args)} inputs, {count} of them scanned, for a body of {len(body.inputs)}")
    in_axes = n.ints("scan_input_axes", [0] * count) or []
    in_back = n.ints("scan_input_directions", [0] * count) or []
    out_axes = n.ints("scan_output_axes", [0] * outs) or []
    out_back = n.ints("scan_output_directions", [0] * outs) or []
    return _scan_once(
        engine, body, args[:states], args[states:], env, (in_axes, in_back, out_axes, out_back)
    )


def _scan_once(
    engine: RunsGraphs,
    body: Graph,
    state: Sequence[Any],
    scanned: Sequence[Any],
    env: Mapping[str, Any],
    layout: tuple[Sequence[int], ...],
) -> list[Any]:
    in_axes, in_back, out_axes, out_back = layout
    moved = [
        np.moveaxis(x, axis, 0)[:: -1 if back else 1]
        for x, axis, back in zip(scanned, in_axes, in_back, strict=True)
    ]
    rounds = _Rounds(engine, body, env, state, len(out_axes))
    with engine.loops.loop((*state, *scanned)):
        for step in range(min(len(x) for x in moved)):
            rounds.run([], [np.array(x[step]) for x in moved], 0)
        outs = []
        for values, axis, back in zip(rounds.scanned, out_axes, out_back, strict=True):
            outs.append(_stacked(values[::-1] if back else values, axis))
    return [*rounds.state, *outs]


def _scan_of_batches(
    engine: RunsGraphs, n: Attributes, args: list[Any], env: Mapping[str, Any], count: int
) -> Sequence[Any]:
    """Scan of opset 8: the first axis is the batch, the second the time."""
    body = n.graph("body")
    args, states = args[1:], len(args) - 1 - count
    outs = len(body.outputs) - states
    back = n.ints("directions", [0] * count) or []
    layout = [0] * count, back, [0] * outs, [0] * outs
    rows = []
    for row in range(len(args[-1])):
        each = [x[row] for x in args]
        rows.append(_scan_once(engine, body, each[:states], each[states:], env, layout))
    return [np.stack(values) for values in zip(*rows, strict=True)]


def _sequence_map(
    engine: RunsGraphs, n: Attributes, args: list[Any], env: Mapping[str, Any]
) -> Sequence[Any]:
    body = n.graph("body")
    rounds = _Rounds(engine, body, env, (), len(body.outputs))
    with engine.loops.loop(args):
        for step in range(len(args[0])):
            inputs = [arg[step] if isinstance(arg, list) else arg for arg in args]
            rounds.run(inputs, [], 0)
    return rounds.scanned


_RUN = {"If": _if, "Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}
