"""Recurrent cells: values and gradients, and what they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from cell_formulas import given, gru_step, lstm_step, rnn_step
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import SlotError, UnknownOperatorError
from opscope.framework.ir.desc import make_op
from opscope.framework.ir.operation import expand_op
from opscope.framework.ir.printer import op_text
from opscope.testing import Case, OpTest

N, K, H, P = 3, 5, 4, 2


class TestRnnCell(OpTest):
    type = "rnn_cell"
    grad = ("x", "h", "w_x", "w_h", "b")

    def cases(self, rng):
        shapes = {"x": (N, K), "h": (N, H), "w_x": (K, H), "w_h": (H, H), "b": H}
        yield Case(given(rng, **shapes))
        yield Case(given(rng, **shapes), {"activation": "sigmoid"})
        yield Case(given(rng, **shapes), {"activation": ""})

    def reference(self, inputs, attrs):
        return rnn_step(inputs, attrs)

    def test_refuses_what_is_no_activation(self):
        slots = {name: name for name in self.grad}
        with pytest.raises(UnknownOperatorError, match="did you mean tan, tanh"):
            expand_op(make_op("rnn_cell", slots, {"out": "y"}, {"activation": "tahn"}))


class TestLstmCell(OpTest):
    type = "lstm_cell"
    grad = ("x", "h", "c", "w_x", "w_h", "b")

    def cases(self, rng):
        shapes = {"x": (N, K), "h": (N, H), "c": (N, H), "w_x": (K, 4 * H), "b": 4 * H}
        shapes["w_h"] = (H, 4 * H)
        yield Case(given(rng, **shapes), {"size": H})
        peepholes = dict.fromkeys(("p_i", "p_f", "p_o"), H)
        yield Case(given(rng, **shapes, **peepholes), {"size": H})
        narrow = {"h": (N, P), "w_h": (P, 4 * H), "w_proj": (H, P)}
        yield Case(given(rng, **shapes | narrow), {"size": H})

    def reference(self, inputs, attrs):
        return lstm_step(inputs, attrs)


class TestGruCell(OpTest):
    type = "gru_cell"
    grad = ("x", "h", "w_x", "b", "w_h")

    def cases(self, rng):
        shapes = {"x": (N, K), "h": (N, H), "w_x": (K, 3 * H), "b": 3 * H}
        yield Case(given(rng, **shapes, w_h=(H, 3 * H), b_h=3 * H), {"size": H})
        yield Case(given(rng, **shapes, w_h=(H, 2 * H), w_n=(H, H)), {"size": H})

    def reference(self, inputs, attrs):
        return gru_step(inputs, attrs)


def test_a_cell_stands_for_plain_operators():
    slots = {name: name for name in ("x", "h", "w_x", "w_h", "b")}
    made = [op_text(op) for op in expand_op(make_op("rnn_cell", slots, {"out": "y"}))]
    assert made == [
        "affine(x=x, w=w_x, b=b) -> out=y@INNER@0  #forward",
        "matmul(x=h, y=w_h) -> out=y@INNER@1  #forward",
        "add(x=y@INNER@0, y=y@INNER@1) -> out=y@INNER@2  #forward",
        "tanh(x=y@INNER@2) -> out=y  #forward",
    ]


def test_step_nets_hold_cells_whole():
    b = NetBuilder("net")
    x = b.input("x", [-1, K], levels=1)
    with b.recurrent("loop") as step:
        row, before = step.input(x), step.memory(H)
        after = b.rnn_cell(row, before, name="cell")
        step.update(before, after)
        step.output(after)
    (loop,) = b.op_list.ops
    (cell,) = loop.attrs["net"].steps[0].net.ops
    assert cell.type == "rnn_cell"
    assert cell.inputs["w_h"] == ("cell.w_h",)


def test_outside_of_a_step_a_cell_is_expanded():
    b = NetBuilder("net")
    x, h = b.input("x", [-1, K]), b.input("h", [-1, H])
    out = b.rnn_cell(x, h, name="cell")
    again = b.add_op("rnn_cell", x, h, *(f"cell.{part}" for part in PARTS))
    assert [op.type for op in b.op_list.ops] == ["affine", "matmul", "add", "tanh"] * 2
    scope, rng = Scope(), np.random.default_rng(0)
    feed = {"x": rng.normal(size=(N, K)), "h": rng.normal(size=(N, H))}
    found = b.run(scope, feed=feed, fetch=[out, again])
    np.testing.assert_array_equal(*found.values())
    with pytest.raises(SlotError, match="'w_h' is missing"):
        b.add_op("rnn_cell", x, h, "cell.w_x")


PARTS = ("w_x", "w_h", "b")


def test_cells_without_a_name_are_counted():
    b = NetBuilder("net")
    x, h = b.input("x", [-1, K]), b.input("h", [-1, H])
    for _ in range(2):
        b.rnn_cell(x, h)
    assert {"rnn_cell_0.w_x", "rnn_cell_1.w_x"} < set(b.forward_net.vars)


def test_an_activation_may_have_parameters():
    b = NetBuilder("net")
    x, h = b.input("x", [-1, K]), b.input("h", [-1, H])
    assert str(b.rnn_cell(x, h, activation="prelu")) == "rnn_cell_0.prelu"
    assert [op.type for op in b.op_list.ops] == ["affine", "matmul", "add", "prelu"]
