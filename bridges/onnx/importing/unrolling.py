"""Loops with a known number of rounds, written out node by node, so that gradients flow through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .calls import Attributes, Call, Kind, Value
from .graph import Graph, Node, instantiated

_MOST_NODES = 20_000


def unrolled(
    n: Attributes,
    values: Mapping[str, Value | None],
    constants: Mapping[str, np.ndarray],
) -> list[Node] | None:
    """The nodes of a Loop or Scan whose rounds are known; None for another one."""
    body = n.graph("body")
    if n.node.op == "Scan":
        return _scan(n, body, values) if n.version >= 9 else None
    return _loop(n, body, values, constants)


def _loop(
    n: Attributes,
    body: Graph,
    values: Mapping[str, Value | None],
    constants: Mapping[str, np.ndarray],
) -> list[Node] | None:
    node = n.node
    trips, condition, *_ = (*node.inputs, "", "")
    count = values.get(trips)
    start = values.get(condition) if condition else None
    if count is None or count.array is None or not never_ends(body, constants):
        return None
    if condition and (start is None or start.array is None):
        return None
    rounds = int(count.array.reshape(-1)[0])
    if start is not None and start.array is not None and not start.array.reshape(-1)[0]:
        rounds = 0
    if not 0 < rounds * len(body.nodes) <= _MOST_NODES:
        return None
    nodes: list[Node] = []
    label = _label(node)
    state = list(node.inputs[2:])
    scanned: list[list[str]] = [[] for _ in body.outputs[1 + len(state) :]]
    for step in range(rounds):
        first = [_constant(nodes, f"{label}@{step}/{k}", v) for k, v in enumerate((step, True))]
        inner = instantiated(
            body, dict(zip(body.inputs, [*first, *state], strict=True)), f"@{label}@{step}"
        )
        nodes += inner.nodes
        state = list(inner.outputs[1 : 1 + len(state)])
        for names, name in zip(scanned, inner.outputs[1 + len(state) :], strict=True):
            names.append(name)
    return nodes + _ends(node, state, scanned, [0] * len(scanned))


def _label(node: Node) -> str:
    """What no other loop's values are called after: nodes may share a name."""
    return next(filter(None, node.outputs), node.name)


def never_ends(body: Graph, constants: Mapping[str, np.ndarray]) -> bool:
    """Whether a body never ends its loop by itself."""
    makers = {out: node for node in body.nodes for out in node.outputs}
    name = body.outputs[0]
    while name in makers and makers[name].op == "Identity":
        name = makers[name].inputs[0]
    if name in constants:
        return bool(constants[name].all())
    return name == body.inputs[1]


def _scan(n: Attributes, body: Graph, values: Mapping[str, Value | None]) -> list[Node] | None:
    node = n.node
    count = n.attr("num_scan_inputs", 0)
    states = len(node.inputs) - count
    outs = len(body.outputs) - states
    in_axes = n.ints("scan_input_axes", [0] * count) or []
    in_back = n.ints("scan_input_directions", [0] * count) or []
    out_axes = n.ints("scan_output_axes", [0] * outs) or []
    out_back = n.ints("scan_output_directions", [0] * outs) or []
    first = values[node.inputs[states]]
    if first is None:
        return None
    steps = first.shape[in_axes[0]]
    if not 0 < steps <= _MOST_NODES // len(body.nodes):
        return None
    nodes: list[Node] = []
    label = _label(node)
    state = list(node.inputs[:states])
    scanned: list[list[str]] = [[] for _ in range(outs)]
    for step in range(steps):
        parts = []
        for number, (axis, back) in enumerate(zip(in_axes, in_back, strict=True)):
            part = f"{label}@{step}/{number}"
            place = {"axis": axis, "at": steps - 1 - step if back else step}
            source = (node.inputs[states + number],)
            nodes.append(Node("Row", "", 16, part, source, (part,), place, kind=Kind(lower=_row)))
            parts.append(part)
        inputs = dict(zip(body.inputs, [*state, *parts], strict=True))
        inner = instantiated(body, inputs, f"@{label}@{step}")
        nodes += inner.nodes
        state = list(inner.outputs[:states])
        for names, name in zip(scanned, inner.outputs[states:], strict=True):
            names.append(name)
    ordered = [
        names[::-1] if back else names for names, back in zip(scanned, out_back, strict=True)
    ]
    return nodes + _ends(node, state, ordered, out_axes)


def _constant(nodes: list[Node], name: str, value: Any) -> str:
    nodes.append(Node("Constant", "", 13, name, (), (name,), {"value": np.array(value)}))
    return name


def _ends(node: Node, state: list[str], scanned: list[list[str]], axes: list[int]) -> list[Node]:
    """The outputs: last states, and what was scanned side by side."""
    nodes: list[Node] = []
    for name, out in zip(state, node.outputs, strict=False):
        if out:
            nodes.append(Node("Identity", "", 13, out, (name,), (out,), {}))
    for names, axis, out in zip(scanned, axes, node.outputs[len(state) :], strict=False):
        if out:
            place = {"axis": axis}
            kind = Kind(lower=_stack)
            nodes.append(Node("Stack", "", 16, out, tuple(names), (out,), place, kind=kind))
    return nodes


def _row(n: Call) -> Value:
    """What a round reads of a value that is scanned."""
    x = n[0]
    axis = n.axis(n.attr("axis", 0), n[0].ndim)
    at = n.attr("at", 0)
    if x.array is not None and not x.is_parameter:
        return n.const(np.take(x.array, at, axis))
    part = n.op("slice", x, axes=[axis], starts=[at], ends=[at + 1])
    return n.reshape(part, [*x.shape[:axis], *x.shape[axis + 1 :]])


def _stack(n: Call) -> Value:
    """What all rounds give, side by side."""
    values = [n[number] for number in range(len(n.inputs))]
    return n.op("stack", values, axis=n.axis(n.attr("axis", 0), values[0].ndim + 1))
