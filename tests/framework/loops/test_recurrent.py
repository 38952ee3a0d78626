"""Recurrent nets against loops written out in NumPy; their gradients against differences."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.base.sequence import Sequences, offsets_of
from opscope.framework.ir.desc import make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.loops.recurrent import chunks as recurrent_chunks
from opscope.framework.loops.recurrent.net import recurrent_op
from opscope.framework.runtime.net import Net
from rnn_nets import check_gradients, fill, gradients, packed, rnn, run, simple, with_loss

LENGTHS = [2, 4, 0, 1]


@pytest.fixture(params=["steps", "fast"], autouse=True)
def way(request, monkeypatch):
    monkeypatch.setenv("OPSCOPE_RECURRENT", request.param)
    return request.param


def values(lengths=LENGTHS, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "xs": packed(rng, lengths, 5),
        "u": rng.normal(size=(5, 3)),
        "w": rng.normal(size=(3, 3)),
        "h0": rng.normal(size=(len(lengths), 3)),
    }


def by_hand(given, *, reverse=False, delay=1, boot=None):
    """What `simple` computes: all states, and the last one of each sequence."""
    xs, offsets = given["xs"].data, given["xs"].levels[0]
    ys, last = np.zeros((len(xs), 3)), []
    for number, (begin, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        first = given["h0"][number] if boot is None else np.full(3, boot)
        states = [first] * delay
        for row in range(begin, end)[:: -1 if reverse else 1]:
            states.append(np.tanh(xs[row] @ given["u"] + states[-delay] @ given["w"]))
            ys[row] = states[-1]
        last.append(states[-1])
    return ys, np.array(last)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("delay", [1, 2, 3])
@pytest.mark.parametrize("lengths", [LENGTHS, [3, 3], [1], [5], [0, 0], [2, 0]])
def test_against_a_loop(reverse, delay, lengths):
    given = values(lengths)
    desc = simple(reverse=reverse, memory={"boot": "h0", "final": "last", "delay": delay})
    found = run(desc, given, ["ys", "last"])
    ys, last = by_hand(given, reverse=reverse, delay=delay)
    np.testing.assert_allclose(found["ys"], ys, atol=1e-12)
    np.testing.assert_allclose(found["last"], last, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_constant_boot_value(reverse):
    desc = simple(reverse=reverse, memory={"boot_value": 0.5, "final": "last"})
    found = run(desc, values(), ["ys", "last"])
    ys, last = by_hand(values(), reverse=reverse, boot=0.5)
    np.testing.assert_allclose(found["ys"], ys, atol=1e-12)
    np.testing.assert_allclose(found["last"], last, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("delay", [1, 2])
@pytest.mark.parametrize("targets", [["ys"], ["last"], ["ys", "last"]])
@pytest.mark.parametrize("lengths", [LENGTHS, [3, 3], [1]])
def test_gradients(reverse, delay, targets, lengths):
    desc = simple(reverse=reverse, memory={"boot": "h0", "final": "last", "delay": delay})
    check_gradients(desc, values(lengths), targets, ["u", "w", "xs", "h0"])


def test_some_gradients_only():
    desc = simple(memory={"boot": "h0", "final": "last"})
    for name in ("u", "w", "xs", "h0"):
        check_gradients(desc, values(), ["ys"], [name])


def test_outputs_carry_the_sequences():
    scope, given = Scope(), values()
    fill(scope, given)
    Net.create(simple()).run(scope, OpContext(live_out=["ys"]))
    assert np.array_equal(scope.get("ys").offsets[0], given["xs"].levels[0])
    assert Sequences(scope.numpy("ys"), scope.get("ys").offsets).to_list()[1].shape == (4, 3)


def test_one_scope_runs_batches_of_other_lengths_and_values():
    net, scope = Net.create(simple(memory={"boot": "h0"})), Scope()
    for seed, lengths in enumerate([[2, 3], [3, 2], [2, 3], [1, 1, 4], [2, 3], [2, 3]]):
        given = values(lengths, seed)
        fill(scope, given)
        net.run(scope, OpContext(live_out=["ys"]))
        np.testing.assert_allclose(scope.numpy("ys"), by_hand(given)[0], atol=1e-12)


def test_forward_and_backward_in_runs_of_their_own():
    desc, batches = simple(memory={"boot": "h0"}), [[2, 3], [3, 2], [2, 3], [4], [2, 3]]
    net, scope = with_loss(desc, values(), ["ys"]), Scope()
    names = net.add_backward_ops("loss", ["w", "xs"])
    whole = with_loss(desc, values(), ["ys"])
    whole.add_backward_ops("loss", ["w", "xs"])
    middle = net.last_forward_op + 1
    for seed, lengths in enumerate(batches):
        given, fresh = values(lengths, seed), Scope()
        fill(scope, given)
        fill(fresh, given)
        net.run(scope, end=middle)
        net.run(scope, begin=middle)
        whole.run(fresh, OpContext(live_out=list(names.values())))
        for name in names.values():
            np.testing.assert_allclose(scope.numpy(name), fresh.numpy(name), atol=1e-12)


def test_several_memories_and_a_state_that_is_linked_out_twice():
    ops = [
        ("matmul", {"x": "p", "y": "w"}, {"out": "a"}),
        ("add", {"x": "a", "y": "x"}, {"out": "s"}),
        ("sigmoid", {"x": "s"}, {"out": "g"}),
        ("mul", {"x": "g", "y": "q"}, {"out": "gq"}),
        ("add", {"x": "gq", "y": "x"}, {"out": "c"}),
        ("tanh", {"x": "c"}, {"out": "h"}),
    ]
    desc = rnn(
        ops,
        ins={"xs": "x"},
        outs={"hs": "h", "again": "h", "cs": "c"},
        statics={"w": "w"},
        memories=[
            {"state": "h", "previous": "p", "boot": "h0", "final": "hT"},
            {"state": "c", "previous": "q", "boot": "h0", "final": "cT"},
        ],
    )
    rng = np.random.default_rng(3)
    given = {
        "xs": packed(rng, LENGTHS, 3),
        "w": rng.normal(size=(3, 3)),
        "h0": rng.normal(size=(4, 3)),
    }
    check_gradients(desc, given, ["hs", "again", "cs", "hT", "cT"], ["w", "xs", "h0"])


def test_sums_over_steps():
    desc = rnn(
        [
            ("mul", {"x": "p", "y": "x"}, {"out": "px"}),
            ("add", {"x": "px", "y": "x"}, {"out": "h"}),
            ("reduce_sum", {"x": "h"}, {"out": "one"}, {"axes": [0]}),
        ],
        ins={"xs": "x"},
        outs={"ys": "h"},
        sums={"total": "one"},
        memories=[{"state": "h", "previous": "p", "boot_value": 1.0}],
        shapes={"p": [-1, 2]},
    )
    given = {"xs": packed(np.random.default_rng(1), [3, 1, 2], 2)}
    found = run(desc, given, ["ys", "total"])
    np.testing.assert_allclose(found["total"], found["ys"].sum(0), atol=1e-12)
    check_gradients(desc, given, ["total"], ["xs"])


def test_a_gradient_that_nothing_flows_to_is_zero():
    desc = rnn(
        [
            ("tanh", {"x": "x"}, {"out": "y"}),
            ("mul", {"x": "p", "y": "w"}, {"out": "h"}),
        ],
        ins={"xs": "x"},
        outs={"ys": "y", "hs": "h"},
        statics={"w": "w"},
        memories=[{"state": "h", "previous": "p", "boot": "h0"}],
    )
    rng = np.random.default_rng(1)
    given = {
        "xs": packed(rng, [3, 1], 2),
        "w": rng.normal(size=2),
        "h0": rng.normal(size=(2, 2)),
    }
    check_gradients(desc, given, ["ys"], ["xs", "w", "h0"])


@pytest.mark.parametrize("rows", [1, 4, 7, 20])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [[5, 9, 0, 2], [4, 4, 4], [7]])
def test_forward_runs_in_pieces(rows, reverse, lengths, monkeypatch):
    monkeypatch.setattr(recurrent_chunks, "ROWS", rows)
    for memory in ({"boot": "h0", "final": "last"}, {"boot_value": 0.5, "delay": 3}):
        given, desc = values(lengths), simple(reverse=reverse, memory=memory)
        scope = Scope()
        fill(scope, given)
        plain = OpList(ops=[recurrent_op(desc)])
        del plain.ops[0].outputs["steps"]  # no steps are kept
        plain.vars.extend(make_var(name, None, None, 1) for name in given)
        wanted = ["ys", *filter(None, [memory.get("final")])]
        Net.create(plain).run(scope, OpContext(live_out=wanted))
        boot, delay = memory.get("boot_value"), memory.get("delay", 1)
        ys, last = by_hand(given, reverse=reverse, boot=boot, delay=delay)
        np.testing.assert_allclose(scope.numpy("ys"), ys, atol=1e-12)
        if "final" in memory:
            np.testing.assert_allclose(scope.numpy("last"), last, atol=1e-12)


def test_memory_of_forward_runs_does_not_grow_with_steps(way, monkeypatch):
    if way == "steps":
        pytest.skip("step scopes keep everything")
    monkeypatch.setattr(recurrent_chunks, "ROWS", 64)
    peaks = []
    for steps in (200, 1600):
        given, net, scope = values([steps, steps]), Net.create(simple()), Scope()
        fill(scope, given)
        context = OpContext(live_out=[])
        net.run(scope, context)
        net.run(scope, context)
        arena = next(value for key, value in scope.bound.items() if "recurrent" in key)
        peaks.append(sum(array.nbytes for array in arena.arrays()))
    assert peaks[0] == peaks[1] > 0


@pytest.mark.parametrize("sparse", [False, True])
def test_tables_and_integers(sparse):
    desc = rnn(
        [
            ("embedding", {"ids": "id", "w": "table"}, {"out": "x"}, {"sparse": sparse}),
            ("add", {"x": "x", "y": "p"}, {"out": "s"}),
            ("tanh", {"x": "s"}, {"out": "h"}),
        ],
        ins={"ids": "id"},
        outs={"ys": "h"},
        statics={"table": "table"},
        memories=[{"state": "h", "previous": "p", "boot": "h0"}],
    )
    rng = np.random.default_rng(0)
    given = {
        "ids": Sequences(rng.integers(0, 4, 7), (offsets_of(LENGTHS),)),
        "table": rng.normal(size=(4, 3)),
        "h0": rng.normal(size=(4, 3)),
    }
    check_gradients(desc, given, ["ys"], ["table", "h0"])


def test_both_ways_draw_the_same_random_numbers(monkeypatch):
    desc = rnn(
        [
            ("dropout", {"x": "p"}, {"out": "d", "mask": "k"}, {"p": 0.5}),
            ("mul", {"x": "d", "y": "x"}, {"out": "s"}),
            ("tanh", {"x": "s"}, {"out": "h"}),
        ],
        ins={"xs": "x"},
        outs={"ys": "h"},
        memories=[{"state": "h", "previous": "p", "boot": "h0"}],
    )
    rng = np.random.default_rng(0)
    given = {"xs": packed(rng, LENGTHS, 3), "h0": rng.normal(size=(4, 3))}
    found = []
    for one in ("steps", "fast"):
        monkeypatch.setenv("OPSCOPE_RECURRENT", one)
        found.append(gradients(desc, given, ["ys"], ["xs", "h0"]))
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, atol=1e-12)
