"""Nets of operators that a hand or a chance has changed: shown and loaded, or one error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import golden_nets
from campaign.__main__ import TARGETS
from campaign.limits import finds
from opscope.framework.base.backend import parse_place
from opscope.framework.base.dtypes import to_dtype
from opscope.framework.base.errors import DeviceError, FormatError, OpscopeError, ShapeError
from opscope.framework.files.saved import op_list_of
from opscope.framework.ir import desc
from opscope.framework.ir.desc import make_op, make_var
from opscope.framework.ir.messages import from_message, parse_net, serialize_net, to_message
from opscope.framework.ir.op_list import OpList
from opscope.framework.passes.verify.verifier import verify
from opscope.proto.net_pb2 import VarDesc

LEVEL = VarDesc(sequence_levels=1)


def test_mutants(tmp_path: Path) -> None:
    found = finds(TARGETS["operators"], 150, tmp_path)
    assert found.refused and not found.finds, list(found.finds)


def damaged(change: Callable[[Any], object]) -> OpList:
    """A net of one operator, changed as a message."""
    relu = make_op("relu", {"x": "x"}, {"out": "y"})
    net = OpList("n", format_version=1, ops=[relu])
    net.vars += [
        make_var("x", (2, 3), "float32", desc.INPUT),
        make_var("y", None, None, desc.OUTPUT),
    ]
    message = to_message(net)
    message.format_version = 1
    change(message)
    return from_message(parse_net(message.SerializeToString()))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: setattr(d.vars[0], "kind", 99), "is of kind 99; there are TEMPORARY"),
        (lambda d: setattr(d.vars[0], "kind", -1), "is of kind -1"),
        (lambda d: setattr(d.vars[0], "dtype", 99), "dtype number 99"),
        (lambda d: d.vars[0].dims.extend([1] * 65), "has 67 dimensions; 64 is the most"),
        (lambda d: setattr(d.vars[0], "sequence_levels", 2**32 - 1), "levels of sequences"),
        (lambda d: setattr(d.vars[0], "lr_factor", float("nan")), "learning rate factor nan"),
        (
            lambda d: (d.vars[0].__setattr__("sequence_levels", 1), d.vars[0].ClearField("dims")),
            "single",
        ),
        (lambda d: setattr(d.ops[0], "role", 77), "has the role 77; there are FORWARD"),
        (lambda d: setattr(d.ops[0], "device", "gpu:" + "9" * 5000), "is no device"),
    ],
)
def test_values_that_no_net_has(change: Callable[[Any], object], told: str) -> None:
    with pytest.raises(OpscopeError, match=told):
        verify(damaged(change))


@pytest.mark.parametrize("text", ["gpu:²", "gpu:", "cpu:", "gpu:" + "9" * 5000, "gpu:-1", "\0"])
def test_places_that_are_none(text: str) -> None:
    with pytest.raises(DeviceError, match="is no device"):
        parse_place(text)


@pytest.mark.parametrize("text", ["Sum(input, input)", "(", "f4,f4", "", "O"])
def test_dtypes_that_are_none(text: str) -> None:
    with pytest.raises(ShapeError, match="is not a dtype"):
        to_dtype(text)


def test_a_delay_without_end() -> None:
    net = op_list_of(golden_nets.block())
    message = to_message(net)
    message.format_version = 1
    step = next(op.attrs["net"].net.steps[0] for op in message.ops if op.type == "recurrent")
    step.memories[0].delay = 2**31
    found = from_message(parse_net(message.SerializeToString()))
    with pytest.raises(OpscopeError, match=r"delay of memory.*2147483648 steps.*delay=NUMBER"):
        verify(found)


def test_names_that_are_no_text() -> None:
    net = OpList("n", format_version=1, ops=[make_op("relu", {"x": "a\ud800"}, {"out": "y"})])
    with pytest.raises(FormatError, match=r"'a\\ud800' is no text in UTF-8"):
        serialize_net(net)
