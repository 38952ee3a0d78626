"""Kinds that look along the dynamic axis: delays, packing, conditions on positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import rules
from ..kind import AttributeSpec, Kind, NdlFunction, register
from ._make import standard


def _delay(values: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    steps = options.get("timeStep", 1)
    return {
        "shape": (int(values[0]),),  # a second number, the columns, means nothing
        "timeStep": options.get("delayTime", 1) if steps == 1 else steps,
        "defaultHiddenActivation": options.get("defaultHiddenActivity", 0.1),
    }


for _operation, _aliases, _direction in (("PastValue", ("Delay",), 1), ("FutureValue", (), -1)):
    register(
        Kind(
            _operation,
            (1, 2),
            rules.unary,
            {
                "shape": AttributeSpec("dims", ()),
                "timeStep": AttributeSpec("int", 1),
                "defaultHiddenActivation": AttributeSpec("float", 0.1),
            },
            aliases=_aliases,
            delay=_direction,
            ndl=(
                NdlFunction(
                    (_operation, *_aliases),
                    _operation,
                    (2, 3),
                    nodes=lambda numbers: range(len(numbers) - 1, len(numbers)),
                    options={
                        "timeStep": AttributeSpec("int", 1),
                        "delayTime": AttributeSpec("int", 1),
                        "defaultHiddenActivity": AttributeSpec("float", 0.1),
                    },
                    attributes=_delay,
                    usage=f"{_operation}(rows, input, timeStep=1, defaultHiddenActivity=0.1)",
                ),
            ),
        )
    )

standard("Where", 1, rules.unary, ndl=None, whole=True)
standard("PackedIndex", 2, rules.unary, ndl=None, whole=True)
standard("GatherPacked", 2, rules.unary, ndl=None, whole=True)
standard("ScatterPacked", 3, rules.unary, ndl=None, whole=True)
standard("ReconcileDynamicAxis", 2, rules.unary, aliases=("ReconcileMBLayout",))
standard(
    "Trace",
    1,
    rules.unary,
    ndl=None,
    attributes={
        "say": AttributeSpec("string", ""),
        "logFrequency": AttributeSpec("int", 100),
        "logFirst": AttributeSpec("int", 10),
        "logGradientToo": AttributeSpec("bool", False),
        "onlyUpToRow": AttributeSpec("int", 100000000),
        "onlyUpToT": AttributeSpec("int", 100000000),
        "format": AttributeSpec("any", None),
    },
)
standard(
    "OptimizedRNNStack",
    2,
    rules.unary,
    aliases=("RNN",),
    ndl=None,
    attributes={
        "hiddenDims": AttributeSpec("int"),
        "numLayers": AttributeSpec("int", 1),
        "bidirectional": AttributeSpec("bool", False),
        "recurrentOp": AttributeSpec("string", "lstm", ("lstm", "gru", "rnnTanh", "rnnReLU")),
        "axis": AttributeSpec("int", -1),
    },
)
