"""Nets in double precision."""

import numpy as np

from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, STATE, make_op, make_var
from opscope.framework.ir.messages import attr_type, serialize_net
from opscope.framework.ir.op_list import OpList
from opscope.framework.passes.precision.to_dtype import ToFloat64
from opscope.framework.runtime.plain_net import PlainNet


def test_a_net_computes_in_double_precision():
    net = OpList()
    start = make_op("constant", {}, {"out": "s"}, {"value": np.ones(2, np.float32)})
    net.vars.append(make_var("x", (2,), "float32", INPUT))
    net.vars.append(make_var("s", (2,), "float32", STATE, initializer=start))
    net.vars.append(make_var("n", (2,), "int64", INPUT))
    net.ops.append(make_op("fill_constant", {}, {"out": "c"}, {"shape": (2,), "value": 2.0}))
    net.ops.append(make_op("add", {"x": "x", "y": "c"}, {"out": "sum"}))
    net.ops.append(make_op("mul", {"x": "sum", "y": "s"}, {"out": "out"}))
    before = serialize_net(net)
    wide = ToFloat64().apply(net)
    assert serialize_net(net) == before
    assert [var.dtype.name for var in wide.vars] == ["float64", "float64", "int64"]
    scope = Scope()
    x = np.array([1e-12, 1.0])
    scope.var("x").set(x)
    scope.var("n").set(np.zeros(2, np.int64))
    scope.var("s").set(wide.vars[1].initializer.attrs["value"])
    PlainNet(wide).run(scope, OpContext())
    assert scope.numpy("out").dtype == np.float64
    assert np.array_equal(scope.numpy("out"), x + 2)


def test_attributes_and_nested_nets():
    inner, net = OpList(), OpList()
    inner.vars.append(make_var("y", (1,), "float32", INPUT))
    attrs = {"step": inner, "table": np.ones(3, np.float32), "ids": np.ones(3, np.int32)}
    attrs |= {"single": np.dtype("float32"), "whole": np.dtype("int16")}
    net.ops.append(make_op("fill_constant", {}, {"out": "c"}, attrs))
    found = ToFloat64().apply(net).ops[0].attrs
    assert found["step"].vars[0].dtype == np.float64
    assert found["table"].dtype == found["single"] == found["dtype"] == np.float64
    assert found["ids"].dtype == np.int32
    assert found["whole"] == np.int16
    assert attr_type(net.ops[0].attrs["single"]) == "dtype"
