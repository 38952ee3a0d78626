"""The operator `recurrent` refuses bad input with names; nets are saved and loaded as they are."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import (
    FormatError,
    GradientError,
    ShapeError,
    SlotError,
    VariableError,
)
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import RECURRENT, make_op, make_var
from opscope.framework.ir.messages import parse_net, serialize_net
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.registry import lookup
from opscope.framework.loops.recurrent.net import RecurrentNet, recurrent_op
from opscope.framework.runtime.net import Net
from rnn_nets import fill, gradients, packed, rnn, run, simple


def values():
    rng = np.random.default_rng(0)
    return {
        "xs": packed(rng, [2, 3], 5),
        "u": rng.normal(size=(5, 3)),
        "w": rng.normal(size=(3, 3)),
        "h0": rng.normal(size=(2, 3)),
    }


def step(ops, **links):
    return Net.create(rnn(ops, **{"ins": {"xs": "x"}, **links}))


TANH = [("tanh", {"x": "x"}, {"out": "h"})]


def test_documented():
    assert "memory" in lookup("recurrent").doc


@pytest.mark.parametrize(
    ("ops", "links", "words"),
    [
        (TANH, {"outs": {"ys": "g"}}, ["out link", "'g'"]),
        (TANH, {"sums": {"ys": "hh"}}, ["sum link", "'hh'", "did you mean h"]),
        (TANH, {"memories": [{"state": "s", "previous": "p"}]}, ["memory", "'s'"]),
        (TANH, {"memories": [{"state": "h", "previous": "p"}]}, ["'p'", "previous 'h'"]),
        (TANH, {"memories": [{"state": "h", "previous": "x"}]}, ["'x'", "linked twice"]),
        (TANH, {"memories": [{"state": "h", "previous": "h"}]}, ["'h'", "writes it"]),
        (TANH, {"statics": {"h": "h"}}, ["'h'", "the step net writes it"]),
    ],
)
def test_links_that_do_not_fit(ops, links, words):
    with pytest.raises(VariableError) as error:
        step(ops, **links)
    assert all(word in str(error.value) for word in ["recurrent net 'rnn'", *words])


def test_no_step_net():
    with pytest.raises(FormatError, match="1 step net.*RECURRENT with 0"):
        Net.create(OpList(type=RECURRENT, name="empty"))


def test_no_in_link():
    desc = rnn([("tanh", {"x": "p"}, {"out": "h"})], memories=[{"state": "h", "previous": "p"}])
    with pytest.raises(SlotError, match="'x' is missing: in-links"):
        Net.create(desc)


def test_in_links_of_different_lengths():
    desc = rnn([("add", {"x": "a", "y": "b"}, {"out": "c"})], ins={"as": "a", "bs": "b"})
    rng = np.random.default_rng(0)
    given = {"as": packed(rng, [2, 3], 4), "bs": packed(rng, [3, 2], 4)}
    with pytest.raises(ShapeError, match="'as' and 'bs'.*lengths: 2, 3 and 3, 2"):
        run(desc, given, [])


def test_offsets_missing():
    given = values()
    given["xs"] = given["xs"].data
    with pytest.raises(ShapeError, match="in-link 'xs' holds no sequences"):
        run(simple(), given, [])


def test_boot_with_wrong_rows():
    given = values() | {"h0": np.zeros((3, 3))}
    with pytest.raises(ShapeError, match="boot 'h0' has 3 rows for 2 sequences"):
        run(simple(memory={"boot": "h0"}), given, [])


def test_boot_with_wrong_columns():
    given = values() | {"h0": np.zeros((2, 4))}
    with pytest.raises(ShapeError, match="in its step net: op 1 .matmul.*p float64.2, 4"):
        run(simple(memory={"boot": "h0"}), given, [])


def test_state_of_another_shape_than_its_previous():
    desc = rnn(
        [("matmul", {"x": "p", "y": "w"}, {"out": "h"}), ("tanh", {"x": "x"}, {"out": "y"})],
        ins={"xs": "x"},
        statics={"w": "w"},
        memories=[{"state": "h", "previous": "p", "boot": "h0"}],
    )
    given = values() | {"w": np.zeros((3, 4))}
    with pytest.raises(ShapeError, match=r"memory 'h' is float64\[2, 4\].*'p' float64\[2, 3\]"):
        run(desc, given, [])


def test_memory_of_unknown_shape():
    desc = simple()
    del desc.steps[0].net.vars[:]
    with pytest.raises(ShapeError, match="'h' has neither a boot variable nor a declared shape"):
        run(desc, values(), [])


def test_out_link_without_rows():
    desc = rnn([("reduce_sum", {"x": "x"}, {"out": "t"})], ins={"xs": "x"}, outs={"ys": "t"})
    with pytest.raises(ShapeError, match="'t'.*no row for each of the 2 sequences"):
        run(desc, values(), [])


def test_wrong_number_of_variables_in_a_slot():
    op = recurrent_op(simple())
    op.inputs["x"] += ("more",)
    net = OpList(ops=[op])
    with pytest.raises(ShapeError, match="1 links want as many variables in 'x', not 2"):
        scope = Scope()
        fill(scope, values() | {"more": values()["xs"]})
        Net.create(net).run(scope)


def test_gradient_needs_steps():
    op = recurrent_op(simple())
    del op.outputs["steps"]
    net = OpList(ops=[op])
    net.vars.extend(make_var(name, None, None, 1) for name in ("xs", "u", "w"))
    with pytest.raises(GradientError, match="'steps'"):
        Net.create(net).add_backward_ops("ys", ["w"])


def test_saved_and_loaded():
    desc = simple(memory={"boot": "h0"})
    again = parse_net(serialize_net(desc))
    assert isinstance(Net.create(again), RecurrentNet)
    assert np.array_equal(run(desc, values(), ["ys"])["ys"], run(again, values(), ["ys"])["ys"])


def test_inside_a_plain_net_that_is_saved_with_its_gradient():
    net, scope = Net.create(OpList(name="outer")), Scope()
    for name in ("xs", "u", "w"):
        net.add_var(make_var(name, None, None, 1))
    net.add_op(recurrent_op(simple()))
    net.add_op("reduce_sum", {"x": "ys"}, {"out": "loss"})
    grads = net.add_backward_ops("loss", ["w"])
    loaded = Net.create(parse_net(serialize_net(net.desc)))
    fill(scope, values())
    loaded.run(scope, OpContext(live_out=[grads["w"]]))
    assert np.abs(scope.numpy(grads["w"])).max() > 0


def test_a_net_of_its_own_grows_and_learns():
    net, scope = Net.create(simple()), Scope()
    index = net.add_op(make_op("square", {"x": "h"}, {"out": "h2"}))
    assert index == 4 and len(net.operators) == 1
    with pytest.raises(VariableError, match="'nowhere'"):
        net.plain.add_backward_ops("nowhere")
    grads = net.add_backward_ops("ys", ["w"])
    fill(scope, values())
    net.run(scope)
    assert scope.numpy(grads["w"]).shape == (3, 3)
    assert gradients(simple(), values(), ["ys"], ["w"])["w"].shape == (3, 3)
