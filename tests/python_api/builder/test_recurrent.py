"""Recurrent nets of NetBuilder: step blocks, attention, carried states, saving, mistakes."""

from __future__ import annotations

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base.errors import AttributeTypeError, ShapeError, VariableError
from opscope.framework.base.sequence import Sequences
from rnn_layers import LENGTHS, H, K, check_gradients, packed, parameters


@pytest.fixture(params=["steps", "fast"])
def way(request, monkeypatch):
    monkeypatch.setenv("OPSCOPE_RECURRENT", request.param)
    return request.param


# -- steps written by hand ---------------------------------------------------------------------


def test_a_block_equals_the_cell(way):
    b = NetBuilder("net", "float64")
    x = b.input("x", [-1, K], levels=1)
    with b.recurrent("hand") as step:
        row = step.input(x)
        h = step.memory(H)
        new = b.fc([row, h], size=H, activation="tanh", name="fc")
        step.update(h, new)
        states = step.output(new)
        last = step.final(h)
    cell, _ = b.simple_rnn(x, H, name="cell")
    assert states.name == "hand" and last.shape == (-1, H)
    assert parameters(b)[:3] == ["fc.w0", "fc.w1", "fc.b"]
    scope = Scope()
    b.initialize(scope)
    for mine, theirs in (("fc.w0", "cell.w_x"), ("fc.w1", "cell.w_h"), ("fc.b", "cell.b")):
        scope.get(theirs).set(scope.numpy(mine))
    feed = {"x": packed(np.random.default_rng(0), LENGTHS, dtype="float64")}
    found = b.run(scope, feed=feed, fetch=[states, cell], need_backward=False)
    np.testing.assert_allclose(found["hand"], found["cell"], rtol=1e-12, atol=1e-14)


def test_links_of_all_kinds(way):
    """A delay, a constant start, an outer variable, a sum over steps, an output of an input."""
    b = NetBuilder("net", "float64")
    x = b.input("x", [-1, 2], levels=1)
    factor = b.input("factor", [2])
    with b.recurrent("r") as step:
        row = step.input(x)
        two_back = step.memory(2, value=3.0, delay=2)
        step.update(two_back, row * factor)
        out = step.output(two_back + row)
        same = step.output(row, "same")
        total = step.total(b.reduce_sum(row, axes=[0]))
    feed = {"x": packed(np.random.default_rng(0), [4, 1, 3], 2, "float64"), "factor": [2.0, -1.0]}
    found = b.run(Scope(), feed=feed, fetch=[out, same, total], need_backward=False)
    np.testing.assert_array_equal(found["same"], feed["x"].data)
    np.testing.assert_allclose(found[total.name], feed["x"].data.sum(0))
    wanted = []
    for rows in feed["x"].to_list():
        before = np.concatenate([np.full((2, 2), 3.0), rows * [2.0, -1.0]])
        wanted.append(rows + before[: len(rows)])
    np.testing.assert_allclose(found["r"], np.concatenate(wanted), rtol=1e-12, atol=1e-14)


def test_blocks_inside_blocks(way):
    """Words of characters: a net over characters inside each step over words."""
    b = NetBuilder("net", "float64")
    x = b.input("x", [-1, K], levels=2)
    boot = b.input("boot", [-1, 3])
    with b.recurrent("words") as outer:
        word = outer.input(x)
        h = outer.memory(boot=boot)
        with b.recurrent("characters") as inner:
            char = inner.input(word)
            p = inner.memory(boot=h)
            inner.update(p, b.fc([char, p], size=3, activation="tanh", name="char"))
            read = inner.final(p)
        outer.update(h, b.fc(read, size=3, activation="tanh", name="word"))
        outer.output(read, "reads")
        last = outer.final(h, "last")
    cost = b.reduce_sum(b.square(last), name="cost")
    b.backward_from(cost, [*parameters(b), "boot", "x"])
    assert parameters(b) == ["char.w0", "char.w1", "char.b", "word.w", "word.b"]
    rng = np.random.default_rng(4)
    items = [[rng.normal(size=(n, K)) for n in item] for item in ([2, 1, 3], [4], [1, 2])]
    feed = {
        "x": Sequences.from_list(items, levels=2),
        "boot": rng.normal(size=(3, 3)),
    }
    scope = Scope()
    found = b.run(scope, feed=feed, fetch=["last", "reads"])
    p = {name: scope.numpy(name) for name in parameters(b)}
    states, reads = [], []
    for item, h in zip(items, feed["boot"], strict=True):
        for word_rows in item:
            for row in word_rows:
                h = np.tanh(row @ p["char.w0"] + h @ p["char.w1"] + p["char.b"])
            reads.append(h)
            h = np.tanh(h @ p["word.w"] + p["word.b"])
        states.append(h)
    np.testing.assert_allclose(found["last"], states, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found["reads"], reads, rtol=1e-12, atol=1e-14)
    check_gradients(b, scope, feed, [*p, "boot", "x"])


@pytest.mark.parametrize("kind", ["dot", "additive"])
def test_a_decoder_with_attention(kind, way):
    b = NetBuilder("net", "float64")
    source = b.input("source", [-1, K], levels=1)
    target = b.input("target", [-1, 3], levels=1)
    memory, last = b.gru(source, H, name="encoder")
    keys = b.fc(memory, size=H, name="keys", bias=False)
    with b.recurrent("decoder") as step:
        row = step.input(target)
        h = step.memory(boot=last[0])
        seen, weights = b.attention(h, memory, keys=keys, kind=kind, name="look")
        new = b.gru_cell(b.concat([row, seen], axis=1), h, name="cell")
        step.update(h, new)
        out = step.output(new)
        step.output(seen, "seen")
    cost = b.reduce_sum(b.square(out), name="cost")
    names = parameters(b)
    b.backward_from(cost, [*names, "source", "target"])
    rng = np.random.default_rng(5)
    feed = {
        "source": packed(rng, [3, 1, 4], dtype="float64"),
        "target": packed(rng, [2, 5, 1], 3, "float64"),
    }
    scope = Scope()
    found = b.run(scope, feed=feed, fetch=["encoder", "keys", "encoder.h", "seen", "decoder"])
    begin = 0
    for n, length in enumerate([3, 1, 4]):  # the first step of each, by hand
        rows = slice(begin, begin + length)
        begin += length
        query, mine = found["encoder.h"][n], found["keys"][rows]
        if kind == "dot":
            e = mine @ query
        else:
            e = np.tanh(query @ scope.numpy("look.q.w") + mine) @ scope.numpy("look.v")[:, 0]
        a = np.exp(e - e.max())
        a /= a.sum()
        first = [0, 2, 7][n]
        np.testing.assert_allclose(
            found["seen"][first], a @ found["encoder"][rows], rtol=1e-10, atol=1e-13
        )
    check_gradients(b, scope, feed, [*names, "source", "target"])


# -- states carried from minibatch to minibatch ------------------------------------------------


@pytest.mark.parametrize("kind", ["lstm", "gru", "simple_rnn"])
def test_carried_states_join_minibatches(kind, way):
    """Two halves with carried states give the outputs of the whole; gradients stop between."""
    rng = np.random.default_rng(6)
    data = rng.normal(size=(2, 6, K))

    def build(**options):
        b = NetBuilder("net", "float64")
        x = b.input("x", [-1, K], levels=1)
        keep = b.input("keep", [2, 1]) if options.get("carry") else None
        out, _ = getattr(b, kind)(x, H, layers=2, name="layer", keep=keep, **options)
        cost = b.reduce_sum(b.square(out), name="cost")
        b.backward_from(cost)
        return b

    whole, parts = build(), build(carry=2)
    scope, other = Scope(), Scope()
    wanted = whole.run(scope, feed={"x": Sequences.from_list(list(data))}, fetch=["layer"])["layer"]
    wanted = wanted.reshape(2, 6, H)
    parts.initialize(other)
    for name in parameters(whole):
        other.get(name).set(scope.numpy(name))
    for start, keep in ((0, 1.0), (3, 1.0), (0, 0.0)):  # states are zeros at first
        feed = {
            "x": Sequences.from_list(list(data[:, start : start + 3])),
            "keep": np.full((2, 1), keep),
        }
        found = parts.run(other, feed=feed, fetch=["layer"])["layer"].reshape(2, 3, H)
        np.testing.assert_allclose(found, wanted[:, start : start + 3], rtol=1e-10, atol=1e-13)


def test_gradients_of_truncated_back_propagation(way):
    """As if the states that were carried over were constants."""
    b = NetBuilder("net", "float64")
    x, keep = b.input("x", [-1, K], levels=1), b.input("keep", [3, 1])
    start, held = b.carried([3, H], keep=keep, name="held")
    out, last = b.gru(x, H, initial=[start], name="layer")
    cost = b.reduce_sum(b.square(out), name="cost")
    b.backward_from(cost, [*parameters(b), "x"])
    scope, rng = Scope(), np.random.default_rng(8)
    b.initialize(scope)
    scope.get("held").set(rng.normal(size=(3, H)))
    feed = {
        "x": packed(rng, [2, 4, 3], dtype="float64"),
        "keep": np.array([[1.0], [0.0], [1.0]]),
    }
    check_gradients(b, scope, feed, [*parameters(b), "x"])
    b.carry(held, last[0])
    found = b.run(scope, feed=feed, fetch=[last[0]])
    np.testing.assert_array_equal(scope.numpy("held"), found["layer.h"])


# -- saving ------------------------------------------------------------------------------------


def test_saved_and_loaded_nets_are_equal(tmp_path):
    b = NetBuilder("net")
    x = b.input("x", [-1, K], levels=1)
    out, _ = b.lstm(x, H, bidirectional=True, name="layer")
    cost = b.mean(b.square(out), name="cost")
    b.backward_from(cost)
    b.add_optimization(0.1, "adam")
    scope = Scope()
    feed = {"x": packed(np.random.default_rng(0), LENGTHS)}
    b.run(scope, feed=feed)
    opscope.save(b, scope, tmp_path / "net.pb")
    net, other = opscope.load(tmp_path / "net.pb", train=True)
    again = NetBuilder.from_desc(net.desc)
    one = b.run(scope, feed=feed, fetch=["layer"], need_backward=False)["layer"]
    two = again.run(other, feed=feed, fetch=["layer"], need_backward=False)["layer"]
    np.testing.assert_array_equal(one, two)
    b.net.run(scope)
    net.run(other)
    for name in parameters(b):
        np.testing.assert_array_equal(scope.numpy(name), other.numpy(name))


def test_training_lowers_the_cost(way):
    """What was at the first step: needs memory."""
    b = NetBuilder("net")
    x, label = b.input("x", [-1, K], levels=1), b.input("label", [-1], "int64")
    _, last = b.gru(x, 12, name="layer")
    cost = b.mean(b.softmax_cross_entropy(b.fc(last[0], size=2), label), name="cost")
    b.backward_from(cost)
    b.add_optimization(0.03, "adam")
    scope, rng = Scope(), np.random.default_rng(0)
    b.initialize(scope, OpContext(seed=1))
    costs = []
    for _ in range(60):
        batch = packed(rng, rng.integers(1, 4, size=16))
        first = np.array([rows[0, 0] > 0 for rows in batch.to_list()])
        feed = {"x": batch, "label": first.astype(np.int64)}
        costs.append(float(b.run(scope, feed=feed, fetch=["cost"])["cost"]))
    assert np.mean(costs[-10:]) < 0.5 * np.mean(costs[:10])


# -- bad input ---------------------------------------------------------------------------------


def builder():
    b = NetBuilder("net")
    return b, b.input("x", [-1, K], levels=1)


def test_mistakes_inside_a_block():
    b, x = builder()
    with pytest.raises(VariableError, match="'r': the memory 'h' is not updated"):
        with b.recurrent("r") as step:
            step.output(b.tanh(step.input(x)))
            step.memory(3, name="h")
    with pytest.raises(VariableError, match="'r': wants an input"):
        with b.recurrent("r") as step:
            step.update(step.memory(3, name="h"), "x")
    with pytest.raises(VariableError, match="memory 'h' is updated twice, with 'x.row' and"):
        with b.recurrent("r") as step:
            row, h = step.input(x), step.memory(K, name="h")
            step.update(h, row)
            step.update(h, h)
    with pytest.raises(VariableError, match="'x.row' is no memory; there are 'h'"):
        with b.recurrent("r") as step:
            row, h = step.input(x), step.memory(K, name="h")
            step.update(row, h)
    with pytest.raises(ShapeError, match="wants a delay of at least 1 and a shape or a boot"):
        with b.recurrent("r") as step:
            step.memory()
    with pytest.raises(ShapeError, match="wants a delay of at least 1"):
        with b.recurrent("r") as step:
            step.memory(3, delay=0)
    with pytest.raises(ShapeError, match=r"boot 'x' is \[\?, 5\]; a memory of rows \[3\] wants"):
        with b.recurrent("r") as step:
            step.memory(3, boot=x)
    with pytest.raises(ShapeError, match=r"the memory .* is float32\[\?, 4\] and its previous"):
        with b.recurrent("r") as step:
            row, h = step.input(x), step.memory(3, name="h")
            step.update(h, b.fc(row, size=4))
            step.output(row)
    with pytest.raises(VariableError, match="outside the block"):
        with b.recurrent("r") as step:
            row = step.input(x)
            step.output(row)
            b.backward_from(b.mean(b.fc(row, size=1)))
    # After all of these the net is as it was, and goes on.
    assert parameters(b) == [] and not b.desc.ops
    b.lstm(x, H, name="layer")
    assert parameters(b) == ["layer.w_x", "layer.w_h", "layer.b"]


def test_layers_inside_a_step_and_states_that_a_step_may_not_write(way):
    b = NetBuilder("net")
    x = b.input("x", [-1, K], levels=2)
    with b.recurrent("words") as step:
        _, last = b.lstm(step.input(x), H, layers=2, bidirectional=True, name="characters")
        out = step.output(b.concat([one.h for one in last], axis=1))
    b.backward_from(b.mean(b.square(out), name="cost"))
    rng = np.random.default_rng(0)
    items = [[rng.normal(size=(n, K)) for n in item] for item in ([2, 1], [3])]
    found = b.run(Scope(), feed={"x": Sequences.from_list(items, levels=2)}, fetch=["words"])
    assert found["words"].shape == (3, 4 * H) and len(parameters(b)) == 12
    with pytest.raises(VariableError, match="'norm.mean' comes from outside, but the step net"):
        with b.recurrent("normed") as step:
            step.output(b.batch_norm(step.input("x"), name="norm"))
    assert "norm.mean" not in [var.name for var in b.desc.vars]


def test_inner_and_outer_variables_are_kept_apart():
    b, x = builder()
    with b.recurrent("r") as step:
        row = step.input(x)
        inside = b.tanh(row)
        states = step.output(inside)
        with pytest.raises(VariableError, match="no variable 'r'"):
            b.tanh(states)
        with pytest.raises(VariableError, match="is of the step itself"):
            step.input(inside)
        with pytest.raises(VariableError, match="'x' is defined already"):
            step.output(inside, "x")
    with pytest.raises(VariableError, match="no variable 'tanh_"):
        b.tanh(inside)
    with pytest.raises(VariableError, match="its block is not the one that is open"):
        step.output(inside)
    with pytest.raises(VariableError, match="its block was open before"):
        step.__enter__()
    with pytest.raises(VariableError, match="its block is not the one that is open"):
        b.recurrent("other").memory(3)
    with pytest.raises(VariableError, match="'r' is defined already"):
        with b.recurrent("r") as step:
            step.output(step.input(x))


def test_wrong_arguments_of_layers():
    b, x = builder()
    wide = b.input("wide", [-1, -1], levels=1)
    h = b.input("h", [-1, H])
    for call, text in (
        (lambda: b.lstm(x, 0), "size >= 1"),
        (lambda: b.gru(x, H, layers=0), "layers >= 1"),
        (lambda: b.gru(x, H, hidden=3), "gru has no argument 'hidden'; it has x, size"),
        (lambda: b.lstm(x, H, bidirectional=True, carry=2), "goes both ways"),
        (lambda: b.lstm(x, H, layers=2, initial=[(h, h)]), "wants 2 states"),
        (lambda: b.lstm(x, H, initial=[h]), r"a pair \(h, c\)"),
        (lambda: b.gru(x, H, initial=[h], carry=2), "either `initial` or carried"),
        (lambda: b.attention(h, x, kind="cosine"), "one of dot, additive, not 'cosine'"),
        (lambda: b.attention(h, x, kind="additive"), "wants `keys` or a size"),
    ):
        with pytest.raises(AttributeTypeError, match=text):
            call()
    with pytest.raises(ShapeError, match=r"x='wide' \[\?, \?\] must be a matrix of a known"):
        b.lstm(wide, H)
    with pytest.raises(ShapeError, match="different widths"):
        b.attention(h, x)
    with pytest.raises(ShapeError, match="h is 6 wide, and c 5, with projection=0"):
        b.lstm_cell(x, h, x)


def test_inputs_of_different_lengths_are_refused_by_name():
    b, x = builder()
    y = b.input("y", [-1, K], levels=1)
    with b.recurrent("r") as step:
        step.output(step.input(x) + step.input(y))
    rng = np.random.default_rng(0)
    feed = {"x": packed(rng, [2, 3]), "y": packed(rng, [3, 2])}
    with pytest.raises(ShapeError, match="'x' and 'y' have sequences of different lengths"):
        b.run(Scope(), feed=feed, fetch=["r"], need_backward=False)
