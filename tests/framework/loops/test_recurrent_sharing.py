"""Variables of a recurrent loop that share memory: which do, and that the numbers stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.loops.recurrent import analysis as recurrent_analysis
from opscope.framework.runtime.fused.loop_arrays import _side_by_side
from rnn_nets import check_gradients, gradients, packed, rnn, run

WIDTH, SIZE = 2, 3
BATCHES = ([4, 4, 4], [3, 1, 4], [5], [0, 2, 1])


def gated(reverse=False, outs=None, more=()):
    """g = x u; i, j = columns of g + p w; h = tanh(j sigmoid(i)), put together with itself."""
    return rnn(
        [
            ("matmul", {"x": "x", "y": "u"}, {"out": "g"}),
            ("matmul", {"x": "p", "y": "w"}, {"out": "m"}),
            ("add", {"x": "g", "y": "m"}, {"out": "s"}),
            ("split", {"x": "s"}, {"out": ["i", "j"]}, {"axis": 1}),
            ("sigmoid", {"x": "i"}, {"out": "a"}),
            ("mul", {"x": "a", "y": "j"}, {"out": "b"}),
            ("concat", {"x": ["b", "a"]}, {"out": "c"}, {"axis": -1}),
            ("matmul", {"x": "c", "y": "v"}, {"out": "d"}),
            ("tanh", {"x": "d"}, {"out": "h"}),
            *more,
        ],
        ins={"xs": "x"},
        outs={"ys": "h", **(outs or {})},
        statics={"u": "u", "v": "v", "w": "w"},
        memories=[{"state": "h", "previous": "p"}],
        shapes={"p": [-1, SIZE]},
        reverse=reverse,
    )


def values(lengths):
    rng = np.random.default_rng(3)
    return {
        "xs": packed(rng, lengths, WIDTH),
        "u": rng.normal(size=(WIDTH, 2 * SIZE)),
        "v": rng.normal(size=(2 * SIZE, SIZE)),
        "w": rng.normal(size=(SIZE, 2 * SIZE)),
    }


@pytest.fixture
def found(monkeypatch):
    """What was found to be shared, net by net."""
    made, share = [], recurrent_analysis.share

    def spy(*args):
        made.append(share(*args))
        return made[-1]

    monkeypatch.setattr(recurrent_analysis, "share", spy)
    return made


def test_sums_and_pieces_are_found(found):
    run(gated(), values([3, 2]), ["ys"])
    (sharing,) = found
    assert [op.type for op in sharing.operators] == ["matmul", "sigmoid", "mul", "matmul", "tanh"]
    assert [op.accumulate for op in sharing.operators] == [True, False, False, False, False]
    assert sharing.onto == {"s": "g"}
    assert sharing.columns == {
        "i": ("s", 0, SIZE),
        "j": ("s", SIZE, 2 * SIZE),
        "b": ("c", 0, SIZE),
        "a": ("c", SIZE, 2 * SIZE),
    }


@pytest.mark.parametrize("read", ["g", "m"])
def test_what_somebody_else_reads_is_not_written_over(read, found):
    desc = gated(outs={"zs": "z"}, more=[("sin", {"x": read}, {"out": "z"})])
    run(desc, values([3, 2]), ["ys", "zs"])
    assert not found[0].onto
    assert "split" not in [op.type for op in found[0].operators]


@pytest.mark.parametrize("linked", ["s", "i", "c"])
def test_links_have_memory_of_their_own(linked, found):
    run(gated(outs={"zs": linked}), values([3, 2]), ["ys", "zs"])
    assert linked not in found[0].names


@pytest.mark.parametrize("lengths", BATCHES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("libraries", ["xp", "mkl,xp"])
def test_the_same_numbers_as_step_by_step(lengths, reverse, libraries, monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIBRARIES", libraries)
    desc, given, results = gated(reverse), values(lengths), []
    for way in ("steps", "fast"):
        monkeypatch.setenv("OPSCOPE_RECURRENT", way)
        grads = gradients(desc, given, ["ys"], ["xs", "u", "v", "w"])
        results.append({**run(desc, given, ["ys"]), **grads})
    for name, value in results[0].items():
        np.testing.assert_allclose(results[1][name], value, rtol=1e-12, atol=1e-14, err_msg=name)


def test_gradients():
    check_gradients(gated(), values([3, 1, 4]), ["ys"], ["xs", "u", "v", "w"])


def test_columns_of_one_matrix_stand_side_by_side():
    whole = np.zeros((4, 6))
    assert _side_by_side(whole[:, :2], whole[:, 2:])
    assert _side_by_side(whole[:, 4:], whole[:, 1:4])
    assert not _side_by_side(whole[:, :3], whole[:, 2:])
    assert not _side_by_side(whole[:, :2], whole[:, :2])
    assert not _side_by_side(whole[:, :2], np.zeros((4, 2)))
    assert not _side_by_side(whole[:, ::2], whole[:, 1::2])
