"""Recurrent nets whose steps see sequences: nested levels, nets within nets, attention."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import NetBuilder
from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.base.sequence import Sequences, offsets_of
from opscope.framework.loops.recurrent import chunks as recurrent_chunks
from opscope.framework.loops.recurrent.net import recurrent_op
from opscope.framework.runtime.net import Net
from rnn_nets import check_gradients, fill, packed, rnn, run

WORDS = [3, 1, 2, 2, 4, 1]  # words of each sentence
SENTENCES = [2, 3, 0, 1]  # sentences of each text


@pytest.fixture(params=["steps", "fast"], autouse=True)
def way(request, monkeypatch):
    monkeypatch.setenv("OPSCOPE_RECURRENT", request.param)
    return request.param


def texts(rng, *shape):
    rows = rng.normal(size=(sum(WORDS), *shape))
    return Sequences(rows, (offsets_of(SENTENCES), offsets_of(WORDS)))


def values():
    rng = np.random.default_rng(0)
    return {
        "xs": texts(rng, 5),
        "u": rng.normal(size=(5, 3)),
        "w": rng.normal(size=(3, 3)),
        "v": rng.normal(size=(3, 5)),
        "h0": rng.normal(size=(4, 3)),
    }


POOLED = [
    ("sequence_pool", {"x": "x"}, {"out": "m"}, {"pool_type": "mean"}),
    ("matmul", {"x": "m", "y": "u"}, {"out": "a"}),
    ("matmul", {"x": "p", "y": "w"}, {"out": "b"}),
    ("add", {"x": "a", "y": "b"}, {"out": "s"}),
    ("tanh", {"x": "s"}, {"out": "h"}),
]


def over_sentences(ops, outs, **fields):
    memory = {"state": "h", "previous": "p", "boot": "h0", "final": "last"}
    return rnn(
        ops,
        ins={"xs": "x"},
        outs=outs,
        statics={"u": "u", "w": "w", **fields.pop("statics", {})},
        memories=[memory],
        **fields,
    )


def by_hand(given, sentence, *, reverse=False):
    """States after each sentence, which the function (words, previous) computes, and last ones."""
    outer, inner = given["xs"].levels
    states, last = np.zeros((len(WORDS), 3)), []
    for number, (begin, end) in enumerate(zip(outer[:-1], outer[1:], strict=True)):
        h = given["h0"][number]
        for which in range(begin, end)[:: -1 if reverse else 1]:
            h = sentence(given["xs"].data[inner[which] : inner[which + 1]], h)
            states[which] = h
        last.append(h)
    return states, np.array(last)


@pytest.mark.parametrize("reverse", [False, True])
def test_steps_see_inner_sequences(reverse):
    given = values()
    desc = over_sentences(POOLED, {"hs": "h"}, reverse=reverse)
    found = run(desc, given, ["hs", "last"])
    states, last = by_hand(
        given, lambda x, h: np.tanh(x.mean(0) @ given["u"] + h @ given["w"]), reverse=reverse
    )
    np.testing.assert_allclose(found["hs"], states, atol=1e-12)
    np.testing.assert_allclose(found["last"], last, atol=1e-12)
    names = ["xs", "u", "w", "h0"]
    check_gradients(desc, {name: given[name] for name in names}, ["hs", "last"], names)


@pytest.mark.parametrize("reverse", [False, True])
def test_out_links_of_both_kinds(reverse):
    ops = [
        *POOLED,
        ("matmul", {"x": "h", "y": "v"}, {"out": "hv"}),
        ("sequence_expand", {"x": "hv", "like": "x"}, {"out": "e"}),
        ("mul", {"x": "e", "y": "x"}, {"out": "y"}),
    ]
    given = values()
    desc = over_sentences(ops, {"hs": "h", "ys": "y"}, statics={"v": "v"}, reverse=reverse)
    scope = Scope()
    fill(scope, given)
    Net.create(desc).run(scope, OpContext(live_out=["hs", "ys"]))
    states, _ = by_hand(
        given, lambda x, h: np.tanh(x.mean(0) @ given["u"] + h @ given["w"]), reverse=reverse
    )
    wanted = np.repeat(states @ given["v"], WORDS, axis=0) * given["xs"].data
    np.testing.assert_allclose(scope.numpy("ys"), wanted, atol=1e-12)
    held = scope.get("ys").offsets
    assert [list(level) for level in held] == [list(level) for level in given["xs"].levels]
    assert len(scope.get("hs").offsets) == 1
    check_gradients(desc, given, ["hs", "ys", "last"], list(given))


def words_net(reverse=False):
    """The inner net: h = tanh(x u + p w) over the words of a sentence, from the outer state."""
    return rnn(
        [
            ("matmul", {"x": "x", "y": "u"}, {"out": "a"}),
            ("matmul", {"x": "q", "y": "w"}, {"out": "b"}),
            ("add", {"x": "a", "y": "b"}, {"out": "s"}),
            ("tanh", {"x": "s"}, {"out": "g"}),
        ],
        ins={"x": "x"},
        outs={"gs": "g"},
        statics={"u": "u", "w": "w"},
        memories=[{"state": "g", "previous": "q", "boot": "p", "final": "h"}],
        name="words",
        reverse=reverse,
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_a_net_within_a_net(reverse):
    given = values()
    desc = over_sentences([], {"ys": "gs", "hs": "h"})
    desc.steps[0].net.ops.append(recurrent_op(words_net(reverse)))
    found = run(desc, given, ["ys", "hs", "last"])

    def sentence(x, h):
        for row in x[:: -1 if reverse else 1]:
            h = np.tanh(row @ given["u"] + h @ given["w"])
        return h

    states, last = by_hand(given, sentence)
    np.testing.assert_allclose(found["hs"], states, atol=1e-12)
    np.testing.assert_allclose(found["last"], last, atol=1e-12)
    assert found["ys"].shape == (sum(WORDS), 3)
    names = ["xs", "u", "w", "h0"]
    check_gradients(desc, {name: given[name] for name in names}, ["ys", "hs", "last"], names)


def attention():
    """Each step looks at all of a memory sequence: softmax of products with the state."""
    return rnn(
        [
            ("sequence_expand", {"x": "p", "like": "m"}, {"out": "e"}),
            ("mul", {"x": "e", "y": "m"}, {"out": "em"}),
            ("reduce_sum", {"x": "em"}, {"out": "score"}, {"axes": [1], "keepdims": True}),
            ("sequence_softmax", {"x": "score"}, {"out": "weight"}),
            ("mul", {"x": "weight", "y": "m"}, {"out": "wm"}),
            ("sequence_pool", {"x": "wm"}, {"out": "c"}, {"pool_type": "sum"}),
            ("add", {"x": "c", "y": "x"}, {"out": "cx"}),
            ("matmul", {"x": "p", "y": "w"}, {"out": "b"}),
            ("add", {"x": "cx", "y": "b"}, {"out": "s"}),
            ("tanh", {"x": "s"}, {"out": "h"}),
        ],
        ins={"xs": "x"},
        outs={"hs": "h"},
        statics={"ms": "m", "w": "w"},
        memories=[{"state": "h", "previous": "p", "boot": "h0"}],
    )


def test_attention_over_a_sequence_of_its_own():
    rng = np.random.default_rng(1)
    given = {
        "xs": packed(rng, [2, 4, 0, 1], 3),
        "ms": packed(rng, [3, 2, 1, 5], 3),
        "w": rng.normal(size=(3, 3)),
        "h0": rng.normal(size=(4, 3)),
    }
    found = run(attention(), given, ["hs"])["hs"]
    (at,), (mem,) = given["xs"].levels, given["ms"].levels
    for number in range(4):
        h, m = given["h0"][number], given["ms"].data[mem[number] : mem[number + 1]]
        for row in range(at[number], at[number + 1]):
            weight = np.exp(m @ h - (m @ h).max())
            context = (weight / weight.sum()) @ m
            h = np.tanh(context + given["xs"].data[row] + h @ given["w"])
            np.testing.assert_allclose(found[row], h, atol=1e-12)
    check_gradients(attention(), given, ["hs"], list(given))


def test_in_links_of_one_and_two_levels():
    ops = [
        ("sequence_pool", {"x": "x"}, {"out": "m"}, {"pool_type": "sum"}),
        ("add", {"x": "m", "y": "z"}, {"out": "y"}),
    ]
    desc = rnn(ops, ins={"xs": "x", "zs": "z"}, outs={"ys": "y"})
    rng = np.random.default_rng(2)
    given = {"xs": texts(rng, 2), "zs": packed(rng, SENTENCES, 2)}
    check_gradients(desc, given, ["ys"], ["xs", "zs"])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_forward_runs_in_pieces(rows, reverse, monkeypatch):
    rng = np.random.default_rng(1)
    attended = {
        "xs": packed(rng, [2, 4, 0, 1], 3),
        "ms": packed(rng, [3, 2, 1, 5], 3),
        "w": rng.normal(size=(3, 3)),
        "h0": rng.normal(size=(4, 3)),
    }
    nets = [
        (over_sentences(POOLED, {"hs": "h"}, reverse=reverse), values(), ["hs", "last"]),
        (attention(), attended, ["hs"]),
    ]
    wanted = [run(*one) for one in nets]
    monkeypatch.setattr(recurrent_chunks, "ROWS", rows)
    for one, whole in zip(nets, wanted, strict=True):
        for name, value in run(*one).items():
            np.testing.assert_allclose(value, whole[name], atol=1e-12)


@pytest.mark.parametrize("lengths", [[1], [2, 2], [3, 3, 3], [4], [3, 1], [2, 4, 1]])
def test_steps_make_sequences_of_their_rows(lengths) -> None:
    """Each step sees a row of words for a text, and gives them back as a sequence."""
    b, scope = NetBuilder("texts", "float64"), Scope()
    rows = b.input("rows", [-1, 2, 3], "float64", levels=1)
    with b.recurrent("steps") as step:
        row = step.input(rows)
        memory = step.memory(3, value=0.5)
        step.update(memory, b.tanh(b.add(memory, b.reduce_sum(row, axes=[1]))))
        out = step.output(b.sequence_rows(row))
    b.initialize(scope)
    given = [np.arange(6.0 * n).reshape(n, 2, 3) + 100 * n for n in lengths]
    found = b.run(scope, feed={"rows": given}, fetch=[out], need_backward=False)[out.name]
    assert np.array_equal(found, np.concatenate(given).reshape(-1, 3))
    made = scope.get(out.name).offsets
    ends = [np.cumsum([0, *lengths]), np.arange(sum(lengths) + 1) * 2]
    assert [each.tolist() for each in made] == [each.tolist() for each in ends]
