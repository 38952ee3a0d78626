"""PastValue, FutureValue, Shift: states before the first row; delays outside of loops."""

from __future__ import annotations

from ....framework.base.errors import FormatError, RunError
from ....framework.base.untrusted.limits import check_limit
from ....framework.ir.desc import INPUT
from ...network.nodes.node import Node
from ..emitter import Delayed, Emitter, dims
from ..table import TABLE, lowers


def delay_steps(node: Node) -> int:
    """How many steps back, or ahead, a delay looks.

    Raises:
        FormatError: more than the limit `delay`.
    """
    values = node.attributes
    steps = abs(values["fromOffset"]) if _is_shift(node) else values["timeStep"]
    try:
        check_limit("delay", steps, "the delay")
    except FormatError as error:
        raise node.error(str(error), FormatError) from None
    return steps


def delay_start(node: Node) -> float:
    """The number that a delay without an initial state begins with."""
    return 0.0 if _is_shift(node) else node.attributes["defaultHiddenActivation"]


def _is_shift(node: Node) -> bool:
    return "fromOffset" in node.attributes


def _initial_state(e: Emitter, node: Node) -> tuple[str, bool] | None:
    """The value before the first row, [...], or one for each sequence, [sequences, ...]: of a
    `Shift`'s boundary that has samples the last one, or the first where it looks ahead."""
    if len(node.inputs) < 2:
        return None
    child = node.inputs[1]
    shape = dims(node)
    value = e.shaped(child, (1,) * (len(shape) - len(dims(child))) + dims(child))
    own = child.axis is not None
    if own:
        e.sequences(child.axis)
        end = "last" if node.delay > 0 else "first"
        value = e.op("sequence_pool", {"x": value}, {"pool_type": end})
    if dims(child) != shape:
        value = e.op("expand", {"x": value}, {"shape": (-1, *shape) if own else shape})
    return value, own


def delay_states(e: Emitter, node: Node, like: str) -> list[str]:
    """Variables [sequences, ...] with the states before the first row of each sequence.

    One for each step of the delay, the nearest row first, where sequences may continue from the
    last minibatch; else one for all steps where a node gives the initial state, or none: it is the
    delay's own number then.

    Args:
        like: a variable with the sequences.
    """
    initial = _initial_state(e, node)
    if node.delay < 0:
        e.lowered.backwards = node
    if not e.carried or node.delay < 0:
        if initial is None:
            return []
        value, own = initial
        return [value if own else e.op("cntk.initial_state", {"x": value, "like": like})]
    shape = (-1, *dims(node))
    count = delay_steps(node)
    states = [e.var(f"{node.name}@BEFORE@{k + 1}", shape, INPUT) for k in range(count)]
    delayed = Delayed(node, states, before=states)
    e.lowered.delays.append(delayed)
    if initial is None:
        return states
    value, own = initial
    if own:
        raise node.error("a boundary with samples has no meaning in truncated sequences", RunError)
    delayed.fresh = e.var(f"{node.name}@FRESH", (-1,), INPUT, "bool")
    reads = {"x": value, "like": like, "fresh": delayed.fresh}
    delayed.before = [e.op("cntk.initial_state", {**reads, "carried": state}) for state in states]
    return delayed.before


def widened(e: Emitter, node: Node) -> str:
    """The input of a delay, broadcast to the shape of its initial state where that is larger."""
    child, *_ = node.inputs
    shape = dims(node)
    if dims(child) == shape:
        return e.value(child)
    return e.op("expand", {"x": e.ranked(child, len(shape))}, {"shape": (-1, *shape)})


@lowers("PastValue", "FutureValue")
def lower_past_value(e: Emitter, node: Node) -> str:
    """Outside of a loop: rows are moved."""
    x = widened(e, node)
    count = delay_steps(node)
    e.sequences(node.axis)
    boundaries = delay_states(e, node, x)
    if len(boundaries) == count > 1:  # one row at a time, each with its own boundary
        for boundary in boundaries:
            x = e.op("sequence_shift", {"x": x, "boundary": boundary}, {"by": node.delay})
        return x
    by = count * node.delay
    if boundaries:
        return e.op("sequence_shift", {"x": x, "boundary": boundaries[0]}, {"by": by})
    return e.op("sequence_shift", {"x": x}, {"by": by, "fill": delay_start(node)})


@lowers("Shift")
def lower_shift(e: Emitter, node: Node) -> str:
    """Over time as a delay, or with copies of the edge rows; or along an axis of the samples."""
    data, boundary = node.inputs
    offset = node.attributes["fromOffset"]
    if offset == 0:
        return e.value(data)
    if node.delay:
        return TABLE["PastValue"](e, node)
    if node.attributes["dim"] == -1:
        e.sequences(node.axis)
        window = {"left": -offset, "right": offset, "padding": "edge"}
        return e.unflat(e.op("sequence_context", {"x": e.flat(data)}, window), node)
    axis = node.attributes["dim"]
    length = data.shape[node.attributes["dim"] - 1]
    count = min(abs(offset), length)
    x = e.value(data)
    rest = (0, length - count) if offset < 0 else (count, length)
    pieces = [e.cut(x, -axis, *rest)]
    if node.attributes["boundaryMode"] == 0:
        edge = e.cut(x, -axis, *((0, 1) if offset < 0 else (length - 1, length)))
    else:
        edge = e.shaped(boundary, (1,) * (len(dims(node)) - len(dims(boundary))) + dims(boundary))
        if boundary.axis is None:
            edge = e.op("cntk.expand_rows", {"x": edge, "like": x})
        size = dims(boundary)[-axis] if axis <= len(dims(boundary)) else 1
        edge = e.cut(edge, -axis, *((size - 1, size) if offset < 0 else (0, 1)))
    shape = list(dims(node))
    shape[-axis] = count
    pieces.insert(0 if offset < 0 else 1, e.op("expand", {"x": edge}, {"shape": (-1, *shape)}))
    return e.op("concat", {"x": pieces}, {"axis": -axis})
