"""Kinds that look along the dynamic axis: delays, packing, conditions on positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..nodes import rules
from ..nodes.attributes import AttributeSpec, FileField
from ..nodes.kind import register, standard
from ..nodes.node import DynamicAxis, Kind, NdlFunction, Node


def _delayed(node: Node, final: bool) -> None:
    """The shape of the input; with an initial state as second input, broadcast with that."""
    rules.elementwise(node, final)
    if final:
        if node.inputs[0].axis is None:
            raise node.error(f"the first input, {node.inputs[0].name}, must have a dynamic axis")
        if len(node.inputs) > 1 and node.inputs[1].axis is not None:
            raise node.error(f"the initial state, {node.inputs[1].name}, must not vary in time")


def _need_scalar(node: Node, number: int) -> None:
    child = node.inputs[number]
    if rules.size(child.shape) != 1:
        raise node.error(
            f"input {number}, {child.name}, must be a sequence of scalars, not of"
            f" [{rules.text(child.shape)}]"
        )


def _need_axis(node: Node, numbers: Sequence[int]) -> None:
    for number in numbers:
        if node.inputs[number].axis is None:
            raise node.error(
                f"input {number}, {node.inputs[number].name}, must have a dynamic axis"
            )


def _where(node: Node, final: bool) -> None:
    """Positions where the condition holds: a new dynamic axis."""
    if final:
        _need_axis(node, (0,))
        _need_scalar(node, 0)
    if node.axis is None:
        node.axis = DynamicAxis(node.attributes["dynamicAxisName"], node)
    node.shape = (1,)


def _packed_index(node: Node, final: bool) -> None:
    index = node.inputs[1]
    node.axis = index.axis
    if final:
        _need_axis(node, (0, 1))
        _need_scalar(node, 1)
    node.shape = index.shape


def _gather(node: Node, final: bool) -> None:
    index, source = node.inputs
    node.axis = index.axis
    if final:
        _need_axis(node, (0,))
        _need_scalar(node, 0)
    shape = source.shape or ()
    if source.axis is None:  # a table: its last axis is indexed
        shape = shape[:-1] if len(shape) > 1 else (1,)
    node.shape = shape


def _scatter(node: Node, final: bool) -> None:
    node.axis = node.inputs[0].axis
    if final:
        _need_axis(node, (0, 1, 2))
        _need_scalar(node, 1)
    node.shape = node.inputs[2].shape


def _reconcile(node: Node, final: bool) -> None:
    if final:
        _need_axis(node, (0, 1))
    node.axis = node.inputs[1].axis
    node.shape = node.inputs[0].shape


_REACH_ACROSS = -1  # boundary mode of Shift: values beyond the sequence are the second input's

_NETWORKS = {"lstm": 4, "gru": 3}  # gates of a cell; 1 for plain recurrence


def rnn_parameters(attributes: Mapping[str, Any], width: int) -> tuple[int, int]:
    """Shape of the one matrix that holds all weights of an `OptimizedRNNStack`, for an input of
    `width` elements. Each gate has two biases, as cuDNN 5 lays them out."""
    hidden = attributes["hiddenDims"]
    directions = 2 if attributes["bidirectional"] else 1
    gates = _NETWORKS.get(attributes["recurrentOp"], 1)
    if min(hidden, attributes["numLayers"]) < 1:
        return 0, 0
    columns = width + (attributes["numLayers"] - 1) * directions * hidden
    total = directions * gates * hidden * (columns + attributes["numLayers"] * (hidden + 2))
    return hidden, total // hidden


def _stack_of_rnns(node: Node, final: bool) -> None:
    rules.common_axis(node)
    weights, data = node.inputs
    shape = data.shape or ()
    rank = 2 if node.attributes["axis"] >= 0 else 1
    if final and len(shape) != rank:
        raise node.error(
            f"the input must have rank {rank} for axis {node.attributes['axis']}, not"
            f" [{rules.text(shape)}]"
        )
    if final and node.axis is None:
        raise node.error("the input must hold samples of a minibatch")
    if not (shape and weights.shape):
        return
    if len(weights.shape) == 2:
        rules.infer(weights, rnn_parameters(node.attributes, rules.size(shape)))
    directions = 2 if node.attributes["bidirectional"] else 1
    node.shape = (directions * node.attributes["hiddenDims"], *shape[1:])


def _delay(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    steps = options.get("timeStep", 1)
    return {
        "shape": (int(values[0]),),  # a second number, the columns, means nothing
        "timeStep": options.get("delayTime", 1) if steps == 1 else steps,
        "defaultHiddenActivation": options.get("defaultHiddenActivity", 0.1),
    }


for _operation, _aliases, _direction, _doc in (
    (
        "PastValue",
        ("Delay",),
        1,
        (
            "x of `timeStep` steps before; before the start of the sequence"
            " `initial`, or without it the number `defaultHiddenActivation`. Loops run"
            " through it."
        ),
    ),
    (
        "FutureValue",
        (),
        -1,
        (
            "x of `timeStep` steps later; after the end of the sequence as with"
            " `PastValue`. Loops run through it."
        ),
    ),
):
    register(
        Kind(
            _operation,
            (1, 2),
            _delayed,
            {
                "shape": AttributeSpec(
                    "dims", (), doc="of x, where it is defined later; 0: inferred"
                ),
                "timeStep": AttributeSpec("int", 1, doc="steps"),
                "defaultHiddenActivation": AttributeSpec(
                    "float", 0.1, doc="the value outside of the sequence"
                ),
            },
            aliases=_aliases,
            delay=_direction,
            reads=("x", "initial"),
            doc=_doc,
            ndl=(
                NdlFunction(
                    (_operation, *_aliases),
                    _operation,
                    (2, 3),
                    nodes=lambda numbers: range(len(numbers) - 1, len(numbers)),
                    options={
                        "timeStep": AttributeSpec("int", 1),
                        "delayTime": AttributeSpec("int", 1, doc="timeStep"),
                        "defaultHiddenActivity": AttributeSpec(
                            "float", 0.1, doc="defaultHiddenActivation"
                        ),
                    },
                    attributes=_delay,
                    usage=f"{_operation}(rows, input, timeStep=1, defaultHiddenActivity=0.1)",
                ),
            ),
        )
    )


def _shift(node: Node, final: bool) -> None:
    """The shape of the input. `dim` is -1 for time, or an axis of the sample from 1 on."""
    data, boundary = node.inputs
    node.axis = data.axis
    node.shape = data.shape
    if not final:
        return
    if node.axis is None:
        raise node.error(f"the first input, {data.name}, must have a dynamic axis")
    if boundary.axis is None and rules.matrix(boundary)[1] != 1:
        raise node.error(f"the boundary {boundary.name} must be a column vector")
    axis = node.attributes["dim"]
    if axis != -1 and not 1 <= axis <= len(node.shape or ()):
        raise node.error(f"dim {axis} is neither -1 nor an axis of [{rules.text(node.shape)}]")


def _shift_direction(attributes: Mapping[str, Any]) -> int:
    """As a delay where it reaches across the start, or the end; not with copies of edge frames."""
    offset = attributes["fromOffset"]
    if attributes["boundaryMode"] != _REACH_ACROSS or attributes["dim"] != -1:
        return 0
    return (offset < 0) - (offset > 0)


standard(
    "Shift",
    2,
    _shift,
    ndl=None,
    direction=_shift_direction,
    attributes={
        "fromOffset": AttributeSpec("int", doc="below 0: before; above: later"),
        "boundaryMode": AttributeSpec(
            "int",
            _REACH_ACROSS,
            doc="-1: the second input stands outside; 0: copies of the step at the edge",
        ),
        "dim": AttributeSpec("int", -1, doc="-1: time; else an axis of the sample, from 1"),
    },
    file_fields=(
        FileField("fromOffset", "int32"),
        FileField("boundaryMode", "int32"),
        FileField("dim", "int32"),
    ),
    reads="x boundary",
    doc=(
        "x of `fromOffset` steps before (below 0) or later; what lies outside of"
        " the sequence is taken from `boundary`, or with `boundaryMode` 0 from the"
        " step at the edge."
    ),
)
standard(
    "Where",
    1,
    _where,
    ndl=None,
    whole=True,
    attributes={"dynamicAxisName": AttributeSpec("string", "WhereNodeAxis", doc="of the new axis")},
    file_fields=(FileField("dynamicAxisName", "wide", 11, "WhereNodeAxis"),),
    reads="condition",
    doc=(
        "The positions in each sequence at which the condition is not 0, as"
        " sequences of a new dynamic axis."
    ),
)
standard(
    "PackedIndex",
    2,
    _packed_index,
    ndl=None,
    whole=True,
    reads="target index",
    doc=("Positions in sequences of `target` as numbers of its samples in the minibatch."),
)
standard(
    "GatherPacked",
    2,
    _gather,
    ndl=None,
    whole=True,
    reads="index source",
    doc=(
        "The samples of `source` with these numbers (of `PackedIndex`), in the"
        " sequences of `index`."
    ),
)
standard(
    "ScatterPacked",
    3,
    _scatter,
    ndl=None,
    whole=True,
    reads="layout index source",
    doc=("The samples of `source` put at these numbers in the sequences of `layout`, 0 elsewhere."),
)
standard(
    "ReconcileDynamicAxis",
    2,
    _reconcile,
    aliases=("ReconcileMBLayout",),
    reads="x layout",
    doc=(
        "x with the dynamic axis of `layout`: says that both have the same"
        " sequences, which is checked while running."
    ),
)
standard(
    "Trace",
    1,
    rules.unary,
    ndl=None,
    attributes={
        "say": AttributeSpec("string", "", doc="words in front of the values"),
        "logFrequency": AttributeSpec("int", 100, doc="minibatches between two logs"),
        "logFirst": AttributeSpec("int", 10, doc="minibatches at the start that are all logged"),
        "logGradientToo": AttributeSpec("bool", False, doc="also log the gradient"),
        "onlyUpToRow": AttributeSpec("int", 100000000, doc="rows that are shown"),
        "onlyUpToT": AttributeSpec("int", 100000000, doc="steps that are shown"),
        "format": AttributeSpec("any", None, doc="as of the action write"),
    },
    reads="x",
    doc="x itself; its values are logged now and then.",
)
standard(
    "OptimizedRNNStack",
    2,
    _stack_of_rnns,
    aliases=("RNN",),
    ndl=None,
    attributes={
        "hiddenDims": AttributeSpec("int", doc="cells of a layer and direction"),
        "numLayers": AttributeSpec("int", 1, doc="layers"),
        "bidirectional": AttributeSpec("bool", False, doc="both directions, one below the other"),
        "recurrentOp": AttributeSpec(
            "string", "lstm", ("lstm", "gru", "rnnTanh", "rnnReLU"), doc="what a step computes"
        ),
        "axis": AttributeSpec(
            "int", -1, doc="-1: along the sequence; 2: along the second axis of each sample"
        ),
    },
    reads="weights x",
    doc=(
        "Layers of LSTM, GRU or plain recurrence over the sequences, all weights"
        " in one matrix in cuDNN's order."
    ),
)
