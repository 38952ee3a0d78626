"""Recurrent layers: values and gradients, what they stand for, and that nets keep them whole."""

from __future__ import annotations

import numpy as np
import pytest

from cell_formulas import given, gru_step, lstm_step, rnn_step
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import UnknownOperatorError
from opscope.framework.ir.desc import make_op
from opscope.framework.ir.messages import parse_net, serialize_net
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.operation import expand_op
from opscope.framework.ir.printer import op_text
from opscope.framework.ir.registry import lookup
from opscope.framework.passes.backward import build_backward
from opscope.framework.passes.lowering import lower
from opscope.framework.runtime.plain_net import PlainNet
from opscope.operators.control.layers import RECURRENT_LAYERS

K, H, P = 3, 4, 2
LENGTHS = (3, 0, 4, 1)
STEPS = {"simple_rnn": rnn_step, "lstm": lstm_step, "gru": gru_step}
PEEPHOLES = dict.fromkeys(("p_i", "p_f", "p_o"), H)
LSTM = {"w_x": (K, 4 * H), "w_h": (H, 4 * H), "b": 4 * H}
GRU = {"w_x": (K, 3 * H), "b": 3 * H}
CASES = (
    ("simple_rnn", {}, {"w_x": (K, H), "w_h": (H, H), "b": H}),
    ("simple_rnn", {"activation": "sigmoid"}, {"w_x": (K, H), "w_h": (H, H), "b": H}),
    ("lstm", {}, LSTM),
    ("lstm", {}, LSTM | PEEPHOLES),
    ("lstm", {"projection": P}, LSTM | {"w_h": (P, 4 * H), "w_proj": (H, P)}),
    ("gru", {}, GRU | {"w_h": (H, 3 * H), "b_h": 3 * H}),
    ("gru", {}, GRU | {"w_h": (H, 2 * H), "w_n": (H, H)}),
)


def expected(kind, values, attrs, states):
    """A layer's results, sequence by sequence and step by step."""
    rows, lasts = [], {state: [] for state in states}
    for number, sequence in enumerate(values["x"]):
        own = {**values, **{state: values[state][number : number + 1] for state in states}}
        made = []
        for row in sequence[::-1] if attrs["reverse"] else sequence:
            found = STEPS[kind]({**own, "x": row[None]}, attrs)
            own |= {state: found[after] for state, after in states.items()}
            made.append(own["h"])
        rows += made[::-1] if attrs["reverse"] else made
        for state, last in lasts.items():
            last.append(own[state])
    return [np.concatenate(rows), *(np.concatenate(last) for last in lasts.values())]


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("kind", "attrs", "weights"), CASES)
def test_values(kind, attrs, weights, reverse, zeros):
    rng = np.random.default_rng(0)
    states = RECURRENT_LAYERS[kind].states
    widths = {"h": attrs.get("projection") or H, "c": H}
    values = given(rng, **weights)
    values |= {state: rng.normal(size=(len(LENGTHS), widths[state])) for state in states}
    values["x"] = [rng.normal(size=(length, K)) for length in LENGTHS]
    if zeros:
        values |= {state: np.zeros_like(values[state]) for state in states}
    b = NetBuilder("net", "float64")
    variables = {"x": b.input("x", [-1, K], levels=1)}
    for name, array in values.items():
        if name != "x" and not (zeros and name in states):
            rows = -1 if name in states else len(array)
            variables[name] = b.input(name, [rows, *array.shape[1:]])
    attrs = {**attrs, "size": H, "reverse": reverse}
    made = b.add_op(kind, **variables, **attrs, dtype="float64")
    found = b.run(Scope(), feed={name: values[name] for name in variables}, fetch=list(made))
    attrs = {"activation": "tanh", **attrs}
    for out, wanted in zip(found.values(), expected(kind, values, attrs, states), strict=True):
        np.testing.assert_allclose(getattr(out, "data", out), wanted, rtol=1e-12, atol=1e-12)


def layer_net():
    b = NetBuilder("net")
    b.lstm(b.input("x", [-1, K], levels=1), H, name="layer")
    return b


def test_a_layer_stands_for_a_loop_over_its_cell():
    (node,) = layer_net().op_list.ops
    (loop,) = expand_op(node)
    assert loop.type == "recurrent"
    assert loop.outputs == {
        "out": ("layer",),
        "final": ("layer.h", "layer.c"),
        "steps": ("layer@STEPS_0",),
    }
    (cell,) = loop.attrs["net"].steps[0].net.ops
    assert cell.type == "lstm_cell"
    assert cell.inputs["w_h"] == ("layer.w_h",)


def test_nets_keep_layers_whole_and_run_loops():
    b = layer_net()
    b.mean(b.fc("layer", size=2), name="cost")
    b.backward_from("cost")
    b.add_optimization(0.1)
    again = PlainNet(parse_net(serialize_net(b.desc)))
    for net in (b.net, again, PlainNet(again.op_list)):
        types = [op.type for op in net.op_list.ops]
        assert types[0] == "lstm"
        assert "recurrent_grad" in types
        assert [op.type for op in net.operators] == ["recurrent", *types[1:]]
        assert [op.type for op in lower(net.op_list).ops] == ["recurrent", *types[1:]]


def test_gradients_of_a_layer_are_those_of_what_it_stands_for():
    net = layer_net().op_list
    whole, plain = (build_backward(one, targets="layer") for one in (net, lower(net)))
    assert [op_text(op) for op in whole.ops] == [op_text(op) for op in plain.ops]
    assert whole.gradients.keys() == {"layer.w_x", "layer.w_h", "layer.b"}


def test_a_layer_that_fails_leaves_the_net_as_it_was():
    net = PlainNet(OpList("net"))
    slots = {name: name for name in ("x", "w_x", "w_h", "b")}
    with pytest.raises(UnknownOperatorError, match="tahn"), net.all_or_nothing():
        net.add_op(make_op("simple_rnn", slots, {"out": "y"}, {"size": H}))
        net.add_op("tahn", ["y"], ["z"])
    net.add_op("tanh", ["x"], ["y"])
    assert [op.type for op in net.op_list.ops] == ["tanh"]


def test_names_inside_differ_from_those_of_weights():
    slots = {"x": "x", "w_x": "x.row", "w_h": "y.h_before", "b": "b"}
    (loop,) = expand_op(make_op("simple_rnn", slots, {"out": "y"}, {"size": H}))
    step = loop.attrs["net"].steps[0]
    assert step.in_links[0].inner == "x.row_"
    assert {link.inner for link in step.static_links} == {"x.row", "y.h_before", "b"}


@pytest.mark.parametrize("kind", RECURRENT_LAYERS)
def test_documented(kind):
    assert "recurrent" in lookup(kind).doc
