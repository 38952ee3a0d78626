"""PastValue and FutureValue: their states before the first row, and delays outside of loops."""

from __future__ import annotations

from ...framework.desc import INPUT
from ..network.node import Node
from .emitter import Delayed, Emitter, dims
from .table import lowers


def delay_states(e: Emitter, node: Node, like: str) -> list[str]:
    """Variables [sequences, ...] with what stands before the first row of each sequence.

    One for each step of the delay, the nearest row first, where sequences may go on from the last
    minibatch; else one for all steps where a node gives the initial state, or none: it is the
    delay's own number then.

    Args:
        like: a variable with the sequences.
    """
    initial = node.inputs[1] if len(node.inputs) > 1 else None
    if initial is not None:
        value = e.shaped(initial, (1,) * (len(dims(node)) - len(dims(initial))) + dims(initial))
        if dims(initial) != dims(node):
            value = e.op("expand", {"x": value}, {"shape": dims(node)})
    if node.delay < 0:
        e.lowered.backwards = node
    if not e.carried or node.delay < 0:
        return [] if initial is None else [e.op("cntk.initial_state", {"x": value, "like": like})]
    shape = (-1, *dims(node))
    count = node.attributes["timeStep"]
    states = [e.var(f"{node.name}@BEFORE@{k + 1}", shape, INPUT) for k in range(count)]
    delayed = Delayed(node, states, before=states)
    e.lowered.delays.append(delayed)
    if initial is None:
        return states
    delayed.fresh = e.var(f"{node.name}@FRESH", (-1,), INPUT, "bool")
    reads = {"x": value, "like": like, "fresh": delayed.fresh}
    delayed.before = [e.op("cntk.initial_state", {**reads, "carried": state}) for state in states]
    return delayed.before


def widened(e: Emitter, node: Node) -> str:
    """What a delay delays, broadcast to the shape of its initial state where that is larger."""
    (child, *_), shape = node.inputs, dims(node)
    if dims(child) == shape:
        return e.value(child)
    return e.op("expand", {"x": e.ranked(child, len(shape))}, {"shape": (-1, *shape)})


@lowers("PastValue", "FutureValue")
def _(e: Emitter, node: Node) -> str:
    """Outside of a loop: rows are moved."""
    x, count = widened(e, node), node.attributes["timeStep"]
    e.sequences(node.axis)
    boundaries = delay_states(e, node, x)
    if len(boundaries) == count > 1:  # one row at a time, each with its own boundary
        for boundary in boundaries:
            x = e.op("sequence_shift", {"x": x, "boundary": boundary}, {"by": node.delay})
        return x
    by = count * node.delay
    if boundaries:
        return e.op("sequence_shift", {"x": x, "boundary": boundaries[0]}, {"by": by})
    fill = node.attributes["defaultHiddenActivation"]
    return e.op("sequence_shift", {"x": x}, {"by": by, "fill": fill})
