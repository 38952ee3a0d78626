"""Nets in memory: what nets share, what a check leaves behind, what messages and nets exchange."""

from __future__ import annotations

import numpy as np
import pytest

import toy_ops  # noqa: F401  registers the operators used here
from opscope import NetBuilder
from opscope.framework.base.errors import AttributeTypeError, ShapeError, SlotError
from opscope.framework.base.sizes.shape import same_as
from opscope.framework.ir.desc import BACKWARD, INPUT, make_op, make_var
from opscope.framework.ir.messages import from_message, to_message, var_from_message
from opscope.framework.ir.op_list import OpList, VarDecl, View
from opscope.framework.ir.operation import Operator
from opscope.framework.ir.registry import AttrSpec, Slot, operator, unregister
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.plain_net import PlainNet
from opscope.proto import net_pb2 as pb


def relu(x: str = "x", out: str = "y"):
    return make_op("toy_relu", {"x": x}, {"out": out})


def test_a_node_is_checked_once():
    node = make_op("toy_square", {"x": "x"}, {"out": "y"}, {"bias": 1})
    first = Operator(node, 0)
    checked = node.checked
    assert checked is not None and checked.is_whole and first.attrs["bias"] == 1.0
    second = Operator(node, 7)
    assert node.checked is checked and second.attrs is first.attrs
    assert second.inputs is node.inputs and second.index == 7
    assert Operator(node.renamed({"x": "z"})).attrs is first.attrs
    assert node.changed(role=BACKWARD).checked is checked
    assert node.changed(attrs={"bias": 2.0}).checked is None
    with pytest.raises(SlotError, match="no input slot 'z'"):
        Operator(node.changed(inputs={"z": ("x",)}))
    with pytest.raises(AttributeTypeError, match="bias=11.0 is above 10"):
        Operator(node.changed(attrs={"bias": 11.0}))


def test_a_type_that_was_registered_anew_is_checked_anew():
    def register(most):
        number = AttrSpec("n", "int", "a number", maximum=most)
        slots = [Slot("x", "an array")], [Slot("out", "the same")]
        inputs, outputs = slots
        return operator(
            "toy_again",
            doc="Test.",
            inputs=inputs,
            outputs=outputs,
            attrs=[number],
            shape=same_as("x"),
        )

    try:
        register(5)
        node = make_op("toy_again", {"x": "x"}, {"out": "y"}, {"n": 5})
        Operator(node)
        unregister("toy_again")
        register(4)
        with pytest.raises(AttributeTypeError, match="n=5 is above 4"):
            Operator(node)
    finally:
        unregister("toy_again")


def test_names_of_outputs_that_nobody_needs_are_left_out_and_stay_in_the_node():
    node = make_op("toy_relu", {"x": "x"}, {"out": "@EMPTY@"})
    assert Operator(relu()).outputs == {"out": ("y",)}
    with pytest.raises(SlotError, match="output slot 'out' is missing"):
        Operator(node)
    assert node.outputs == {"out": ("@EMPTY@",)}


def test_nets_share_operators_and_variables():
    net = PlainNet(OpList("n", vars=[make_var("x", (2,), kind=INPUT)], ops=[relu()]))
    one, other = net.op_list, net.op_list
    assert one.ops[0] is other.ops[0] is net.operators[0].node
    assert one.vars[0] is net.vars["x"] and one.ops is not other.ops
    one.ops.clear()
    one.vars.clear()
    one.metadata["k"] = "v"
    assert len(net.op_list.ops) == 1 and len(net.op_list.vars) == 2 and net.metadata == {}


def test_a_builder_goes_on_without_making_its_operators_again():
    b = NetBuilder("net")
    h = b.relu(b.fc(b.input("x", [-1, 3]), size=2))
    before = [op.node for op in b.net.operators]
    b.backward_from(b.mean(h))
    assert [op.node for op in b.net.operators][: len(before)] == before


def test_messages_are_copies_but_for_metadata():
    x = make_var("x", (2,), kind=INPUT)
    net = PlainNet(OpList("n", vars=[x], ops=[relu()], metadata={"a": "1"}))
    desc = net.desc
    assert desc is net.desc and isinstance(desc, pb.NetDesc)
    desc.ops[0].type = "other"
    desc.metadata["b"] = "2"
    assert net.op_list.ops[0].type == "toy_relu"
    assert dict(net.metadata) == net.op_list.metadata == {"a": "1", "b": "2"}
    net.add_op(relu("y", "z"))
    assert net.desc is not desc and [op.type for op in net.desc.ops] == ["toy_relu"] * 2
    assert dict(net.desc.metadata) == {"a": "1", "b": "2"}


def test_messages_and_nodes_are_taken_alike():
    declared = [make_var("x", (2,), kind=INPUT), make_var("y", (2,))]
    listed = OpList("n", vars=declared, ops=[relu()])
    for given in (listed, to_message(listed)):
        net = Net.create(given)
        net.add_var(pb.VarDesc(name="w", kind=INPUT))
        assert net.add_op(to_message(OpList(ops=[relu("y", "z")])).ops[0]) == 1
        assert list(net.vars) == ["x", "y", "w", "z"]
        assert net.vars["z"].shape == (2,)
    assert len(listed.ops) == 1 and len(listed.vars) == 2


def test_a_failed_pass_leaves_nothing():
    net = PlainNet(OpList(vars=[make_var("x", (2,), kind=INPUT)], ops=[relu()]))
    with pytest.raises(SlotError):
        net._extend([relu("y", "z"), make_op("toy_relu", {"q": "z"}, {"out": "p"})], [VarDecl("v")])
    assert [op.index for op in net.operators] == [0] and list(net.vars) == ["x", "y"]


def test_dtypes_that_nobody_knows_fail_where_they_are_used():
    var = var_from_message(pb.VarDesc(name="v", dtype=99))
    assert var.unknown_dtype == 99
    with pytest.raises(ShapeError, match="dtype number 99"):
        assert var.dtype
    assert var.changed(dtype=np.dtype("float32")).dtype == np.float32


def test_changed_variables_are_others():
    var = make_var("v", (2, 3), "float64", INPUT, view=View("m", 0, 2, 1, 4), lr_factor=0.5)
    other = var.changed(name="w", shape=None)
    assert (other.name, other.shape, other.dtype) == ("w", None, np.float64)
    assert other.view == var.view and other.lr_factor == 0.5 and var.name == "v"
    assert to_message(from_message(to_message(OpList(vars=[var, other])))) == to_message(
        OpList(vars=[var, other])
    )
