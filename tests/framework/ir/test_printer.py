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
    make_op,
    make_var,
)
from opscope.framework.ir.messages import (
    op_from_message,
    parse_net,
    serialize_net,
    var_from_message,
)
from opscope.framework.ir.op_list import (
    Link,
    MemoryDecl,
    OpList,
    SourceLocation,
    StepDecl,
    View,
)
from opscope.framework.ir.printer import net_text, op_text, var_text
from opscope.framework.passes.optimizer import OptimizerAttrs
from opscope.framework.runtime.net import Net
from opscope.proto import net_pb2 as pb

GOLDEN = Path(__file__).parents[2] / "golden"


def check_golden(name, text):
    path = GOLDEN / name
    if os.environ.get("OPSCOPE_UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text(), f"{name} differs; see the head of this module"


def training_net():
    """Forward, backward and update operators of a product with a bias."""
    desc = OpList(name="training", metadata={"units": "meters", "author": "a test"})
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
    return net.op_list


def rich_net():
    """Everything that a message can say."""
    desc = OpList(name='rich "one"', type=RECURRENT)
    desc.vars.extend(
        [
            make_var("frames", (-1, 4), kind=INPUT, sequence_levels=2),
            make_var("half", (-1, 2), view=View("frames", 0, -1, 2, 4)),
            make_var("all", None, None, OUTPUT),
            make_var("count", (), "int64", STATE, stop_gradient=True),
            make_var("a name, with = signs", (0,), "bool"),
        ]
    )
    inner = OpList(name="inner")
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
    step = StepDecl(reverse=True, arity=2)
    desc.steps.append(step)
    step.net.name = "cell"
    step.net.ops.append(make_op("toy_add", {"x": "row", "y": "before"}, {"out": "now"}))
    step.in_links.append(Link("frames", "row"))
    step.static_links.append(Link("count", "n"))
    step.out_links.append(Link("all", "now"))
    step.memories.append(MemoryDecl(state="now", previous="before", delay=2, boot="half"))
    step.memories.append(MemoryDecl(state="now", previous="other", boot_value=0.5))
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
    shuffled = desc.copy()
    op = shuffled.ops[-1]
    attrs = {name: op.attrs[name] for name in sorted(op.attrs, reverse=True)}
    shuffled.ops[-1] = op.changed(attrs=attrs)
    assert net_text(shuffled) == text


def test_locations_are_an_option():
    op = make_op("toy_relu", {"x": "a"}, {"out": "b"})
    op.source = SourceLocation("net.ndl", 3, 7)
    desc = OpList(ops=[op])
    assert "net.ndl" not in net_text(desc)
    line = "  %0 toy_relu(x=a) -> out=b  #forward @net.ndl:3:7\n"
    assert net_text(desc, locations=True).endswith(line)


def test_variables_can_be_left_out():
    text = net_text(training_net(), variables=False)
    assert "vars" not in text and text.count("\n") == len(text.splitlines())


def test_an_empty_net():
    assert net_text(OpList()) == 'net "" PLAIN version 1\n'


def test_one_line_an_operator_whatever_its_names():
    op = make_op("x\ny", {"a b": ["c\n", "d)"]}, {"out": ""}, {"k\t": "v\u2028\n"})
    assert op_text(op, 3) == (
        '%3 "x\\ny"("a b"=["c\\n", "d)"]) -> out=""  {"k\\t"="v\\u2028\\n"}  #forward'
    )
    assert len(op_text(op).splitlines()) == 1


def test_messages_of_other_versions_still_print():
    # proto3 keeps numbers without a name
    var = pb.VarDesc(name="v", dims=[2], has_dims=True, dtype=99, kind=77)
    assert var_text(var_from_message(var)) == "#77  v  dtype#99[2]"
    op = pb.OpDesc(type="t", role=5)
    op.attrs["unset"].SetInParent()
    op.attrs["kind"].dtype = 99
    op.attrs["hurt"].tensor.dims.append(5)
    assert op_text(op_from_message(op)) == (
        "t() -> ()  {hurt=<damaged tensor dtype_unknown[5]>, kind=<dtype#99>, unset=<nothing>}  #5"
    )


@pytest.mark.parametrize("value", [0.1, 1e-30, -0.0, float("inf"), float("nan"), 1.0])
def test_floats_read_back_as_they_were(value):
    op = make_op("t", {}, {}, {"f": value})
    shown = op_text(op).split("f=")[1].split("}")[0]
    assert np.array_equal(float(shown), value, equal_nan=True)
