"""The text form: golden files, and names and values that could be mistaken.

To accept a change of the text form, run the tests with OPSCOPE_UPDATE_GOLDEN=1 and read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from opscope.framework.ir.desc import (
    BACKWARD,
    INPUT,
    OUTPUT,
    PARAMETER,
    RECURRENT,
    STATE,
    NetDesc,
    OpDesc,
    make_op,
    make_var,
    parse_net,
    serialize_net,
)
from opscope.framework.ir.printer import net_text, op_text, var_text
from opscope.framework.passes.optimizer import OptimizerAttrs
from opscope.framework.runtime.net import Net

GOLDEN = Path(__file__).parents[1] / "golden"


def check_golden(name, text):
    path = GOLDEN / name
    if os.environ.get("OPSCOPE_UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text(), f"{name} differs; see the head of this module"


def training_net():
    """Forward, backward and update operators of a product with a bias."""
    desc = NetDesc(name="training", metadata={"units": "metres", "author": "a test"})
    fill = make_op("uniform_random", {}, {"out": "w"}, {"shape": [2, 3], "low": -0.5, "high": 0.5})
    desc.vars.extend(
        [
            make_var("x", (2, 3), kind=INPUT),
            make_var("w", (2, 3), kind=PARAMETER, initializer=fill),
            make_var("b", (2, 3), kind=PARAMETER, lr_factor=2.0),
            make_var("y", None, None, OUTPUT),
        ]
    )
    net = Net.create(desc)
    net.add_op("toy_mul", {"x": "x", "y": "w"}, {"out": "m"})
    net.add_op("toy_add", {"x": "m", "y": "b"}, {"out": "s"})
    net.add_op("toy_relu", {"x": "s"}, {"out": "y"})
    net.add_backward_ops()
    net.add_optimizer_ops(OptimizerAttrs("toy_sgd", 0.5))
    return net.desc


def rich_net():
    """Everything that a message can say."""
    desc = NetDesc(name='rich "one"', type=RECURRENT)
    desc.vars.extend(
        [
            make_var("frames", (-1, 4), kind=INPUT, sequence_levels=2),
            make_var("half", (-1, 2)),
            make_var("all", None, None, OUTPUT),
            make_var("count", (), "int64", STATE, stop_gradient=True),
            make_var("a name, with = signs", (0,), "bool"),
        ]
    )
    view = desc.vars[1].view
    view.base, view.row_end, view.col_begin, view.col_end = "frames", -1, 2, 4
    inner = NetDesc(name="inner")
    inner.ops.append(make_op("toy_relu", {"x": "p"}, {"out": "q"}))
    attrs = {
        "body": inner,
        "flag": True,
        "text": 'a\n"b"',
        "many": [1, -2],
        "none": [],
        "rates": [0.1, float("inf")],
        "kind": np.dtype("float16"),
        "small": np.array([[1.5, -2.0]]),
        "large": np.arange(20, dtype=np.int32),
    }
    desc.ops.append(make_op("toy_holder", {"x": ["frames", "half"]}, {"out": "all"}, attrs))
    desc.ops[0].device = "gpu:1"
    desc.ops.append(make_op("unknown type", {}, {}, role=BACKWARD))
    step = desc.steps.add(reverse=True, arity=2)
    step.net.name = "cell"
    step.net.ops.append(make_op("toy_add", {"x": "row", "y": "before"}, {"out": "now"}))
    step.in_links.add(outer="frames", inner="row")
    step.static_links.add(outer="count", inner="n")
    step.out_links.add(outer="all", inner="now")
    step.memories.add(state="now", previous="before", delay=2, boot="half")
    step.memories.add(state="now", previous="other", boot_value=0.5)
    return desc


def test_golden_text_of_a_training_net():
    check_golden("training_net.txt", net_text(training_net()))


def test_golden_text_of_all_that_a_net_can_hold():
    check_golden("rich_net.txt", net_text(rich_net()))


def test_the_text_is_stable():
    desc = training_net()
    text = net_text(desc)
    assert net_text(parse_net(serialize_net(desc))) == text
    assert net_text(training_net()) == text
    shuffled = NetDesc()
    shuffled.CopyFrom(desc)
    op = shuffled.ops[-1]
    held = dict(op.attrs)
    op.attrs.clear()
    for name in sorted(held, reverse=True):
        op.attrs[name].CopyFrom(held[name])
    assert net_text(shuffled) == text


def test_locations_are_an_option():
    op = make_op("toy_relu", {"x": "a"}, {"out": "b"})
    op.source.file, op.source.line, op.source.column = "net.ndl", 3, 7
    desc = NetDesc(ops=[op])
    assert "net.ndl" not in net_text(desc)
    line = "  %0 toy_relu(x=a) -> out=b  #forward @net.ndl:3:7\n"
    assert net_text(desc, locations=True).endswith(line)


def test_variables_can_be_left_out():
    text = net_text(training_net(), variables=False)
    assert "vars" not in text and text.count("\n") == len(text.splitlines())


def test_an_empty_net():
    assert net_text(NetDesc()) == 'net "" PLAIN version 1\n'


def test_one_line_an_operator_whatever_its_names():
    op = make_op("x\ny", {"a b": ["c\n", "d)"]}, {"out": ""}, {"k\t": "v\u2028\n"})
    assert op_text(op, 3) == (
        '%3 "x\\ny"("a b"=["c\\n", "d)"]) -> out=""  {"k\\t"="v\\u2028\\n"}  #forward'
    )
    assert len(op_text(op).splitlines()) == 1


def test_messages_of_other_versions_still_print():
    var = make_var("v", (2,))
    var.dtype = 99  # proto3 keeps numbers without a name
    var.kind = 77
    assert var_text(var) == "#77  v  dtype#99[2]"
    op = OpDesc(type="t", role=5)
    op.attrs["unset"].SetInParent()
    op.attrs["kind"].dtype = 99
    op.attrs["hurt"].tensor.dims.append(5)
    assert op_text(op) == (
        "t() -> ()  {hurt=<damaged tensor dtype_unknown[5]>, kind=<dtype#99>, unset=<nothing>}  #5"
    )


@pytest.mark.parametrize("value", [0.1, 1e-30, -0.0, float("inf"), float("nan"), 1.0])
def test_floats_read_back_as_they_were(value):
    op = make_op("t", {}, {}, {"f": value})
    shown = op_text(op).split("f=")[1].split("}")[0]
    assert np.array_equal(float(shown), value, equal_nan=True)
