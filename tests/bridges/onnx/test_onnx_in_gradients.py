"""ONNX in: gradients through imported nodes, against differences of two runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing.model import model_of_bytes

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def recurrent(kind: str, gates: int, **attributes: Any) -> Callable[[Graph, str], str]:
    def build(g: Graph, x: str) -> str:  # x [4, 2, 3]
        w, r = g.constant(normal(2, gates * 5, 3), "w"), g.constant(normal(2, gates * 5, 5), "r")
        bias = g.constant(normal(2, 2 * gates * 5), "b")
        values = [x, w, r, bias]
        return g.node(
            kind, values, outputs=["y"], hidden_size=5, direction="bidirectional", **attributes
        )

    return build


def shortened(g: Graph, x: str) -> str:
    """Each direction begins at the end of its sequence; the rest is zeros."""
    values = [x, *(g.constant(normal(2, 20, n), name) for n, name in ((3, "w"), (5, "r")))]
    lengths, peepholes = g.constant(np.array([4, 2], np.int32)), g.constant(normal(2, 15), "p")
    values += [g.constant(normal(2, 40), "b"), lengths, None, None, peepholes]
    return g.node("LSTM", values, outputs=["y"], hidden_size=5, direction="bidirectional", clip=0.9)


def resized(mode: str, **attributes: Any) -> Callable[[Graph, str], str]:
    def build(g: Graph, x: str) -> str:
        image = g.node(
            "Reshape", [g.node("Mul", [x, g.constant(normal(4, 2, 3), "w")]), g.ints(1, 2, 4, 3)]
        )
        scales = g.constant([1, 1, 1.5, 2], dtype=np.float32)
        return g.node("Resize", [image, None, scales], "y", mode=mode, **attributes)

    return build


def sampled(g: Graph, x: str) -> str:
    grid = g.constant(RNG.uniform(-1.2, 1.2, (1, 3, 3, 2)), "w")
    image = g.node("Reshape", [x, g.ints(1, 2, 4, 3)])
    return g.node("GridSample", [image, grid], "y", mode="bilinear")


def attended(g: Graph, x: str) -> str:
    rows = g.node("MatMul", [x, g.constant(normal(3, 8), "w")])
    return g.node(
        "Attention", [rows, rows, rows], outputs=["y"], q_num_heads=4, kv_num_heads=4, is_causal=1
    )


def turned(g: Graph, x: str) -> str:
    rows = g.node("MatMul", [x, g.constant(normal(3, 8), "w")])
    tables = [g.constant(normal(4, 2, 2)), g.constant(normal(4, 2, 2))]
    return g.node("RotaryEmbedding", [rows, *tables], "y", num_heads=2)


def picked(g: Graph, x: str) -> str:
    w = g.constant(normal(4, 2, 3), "w")
    at = g.constant(np.array([[[0, -1]], [[3, 1]]]))
    chosen = g.node("GatherND", [g.node("Mul", [x, w]), at])
    where = g.constant(np.array([[[0, 2, 1]], [[1, 0, 2]]]))
    return g.node("ScatterElements", [chosen, where, g.node("Exp", [chosen])], "y", axis=2)


def transposed(g: Graph, x: str) -> str:
    values = [x, g.constant(normal(2, 3, 3), "w"), g.constant(normal(3), "b")]
    return g.node("ConvTranspose", values, "y", strides=[2], output_padding=[1], pads=[1, 0])


def spectrum(g: Graph, x: str) -> str:
    wave = g.node(
        "Reshape", [g.node("Mul", [x, g.constant(normal(4, 2, 3), "w")]), g.ints(1, 24, 1)]
    )
    step, window = g.constant(4, dtype=np.int64), g.constant(np.hanning(8))
    return g.node("STFT", [wave, step, window], "y")


def scaled(g: Graph, x: str) -> str:
    """Factors that nodes put together, as exporters of PyTorch write them."""
    image = g.node(
        "Reshape", [g.node("Mul", [x, g.constant(normal(4, 2, 3), "w")]), g.ints(1, 2, 4, 3)]
    )
    parts = [g.constant(part, dtype=np.float32) for part in ([1, 1], [2, 2])]
    return g.node("Resize", [image, None, g.node("Concat", parts, axis=0)], "y", mode="nearest")


def cut(
    at: int, sizes: Any, *, trained: bool = False, **attributes: Any
) -> Callable[[Graph, str], str]:
    """An element of a sequence that is cut at known places from a tensor, or from a parameter."""

    def build(g: Graph, x: str) -> str:
        w = g.constant(normal(4, 2, 3), "w")
        values = [w if trained else g.node("Mul", [x, w])]
        if sizes is not None:
            values.append(g.constant(np.array(sizes), dtype=np.int64))
        parts = g.node("SplitToSequence", values, **attributes)
        part = g.node("SequenceAt", [parts, g.constant(np.array(at), dtype=np.int64)])
        return g.node("Mul", [part, g.node("ReduceMax", [x], keepdims=0)], "y")

    return build


def clipped(g: Graph, x: str) -> str:
    """Bounds of the other type that are cast as the tensor is."""
    y = g.node("Mul", [x, g.constant(normal(4, 2, 3), "w")])
    low, high = (g.node("CastLike", [g.constant(v, dtype=np.float32), y]) for v in (-0.5, 0.5))
    return g.node("Clip", [y, low, high], "y")


def clipped_places(g: Graph, x: str) -> str:
    """Whole numbers that depend on data; and limits that cross."""
    y = g.node("Mul", [x, g.constant(normal(4, 2, 3), "w")])
    low, high = (g.constant(np.array(v), dtype=np.int64) for v in (0, 3))
    places = g.node("Clip", [g.node("Cast", [x], to=7), low, high])  # 7: int64
    one, two = (g.constant(np.array(v), dtype=np.float64) for v in (1, 2))
    crossed = g.node("Clip", [y, two, one])
    return g.node(
        "Add",
        [g.node("Gather", [y, places], axis=0), g.node("ReduceSum", [crossed], keepdims=0)],
        "y",
    )


def lost(g: Graph, x: str) -> str:
    """A loss of classes with weights, which leaves one label out."""
    logits = g.node("Mul", [x, g.constant(normal(4, 2, 3), "w")])
    values = [logits, g.constant(np.array([[0, 1, 7]] * 4)), g.constant([0.3, 1.2], "scale")]
    loss = g.node("SoftmaxCrossEntropyLoss", values, ignore_index=7)
    return g.node("Reshape", [loss, g.ints(1)], "y")


def moved_taps(g: Graph, x: str) -> str:
    image = g.node("Reshape", [x, g.ints(1, 2, 4, 3)])
    offsets = g.constant(RNG.uniform(-0.7, 0.7, (1, 8, 3, 2)), "b")
    return g.node("DeformConv", [image, g.constant(normal(3, 2, 2, 2), "w"), offsets], "y")


def blocks(g: Graph, x: str) -> str:
    columns = g.node(
        "Reshape", [g.node("Mul", [x, g.constant(normal(4, 2, 3), "w")]), g.ints(1, 4, 6)]
    )
    return g.node("Col2Im", [columns, g.ints(3, 4), g.ints(2, 2)], "y")


def back_again(g: Graph, x: str) -> str:
    """A transform of pairs, padded, and the half of its inverse that real signals have."""
    pairs = g.node(
        "Reshape", [g.node("Mul", [x, g.constant(normal(4, 2, 3), "w")]), g.ints(2, 6, 2)]
    )
    whole = g.node("DFT", [pairs, g.constant(np.array(8)), g.constant(np.array(1))])
    return g.node("DFT", [whole, None, g.constant(np.array(1))], "y", inverse=1, onesided=1)


CASES: dict[str, tuple[Callable[[Graph, str], str], int]] = {
    "LSTM": (recurrent("LSTM", 4), 17),
    "GRU": (recurrent("GRU", 3, linear_before_reset=1), 17),
    "RNN": (recurrent("RNN", 1), 17),
    "LSTM with lengths, peepholes, a limit": (shortened, 17),
    "SoftmaxCrossEntropyLoss": (lost, 17),
    "DFT of pairs, and back": (back_again, 20),
    "DeformConv": (moved_taps, 19),
    "Col2Im": (blocks, 18),
    "Resize linear": (resized("linear"), 17),
    "Resize cubic": (resized("cubic", coordinate_transformation_mode="align_corners"), 17),
    "GridSample": (sampled, 20),
    "Attention": (attended, 23),
    "RotaryEmbedding": (turned, 23),
    "GatherND, ScatterElements": (picked, 18),
    "ConvTranspose": (transposed, 17),
    "STFT": (spectrum, 17),
    "Clip by bounds that are cast": (clipped, 17),
    "Clip of whole numbers, limits that cross": (clipped_places, 17),
    "Resize by factors put together": (scaled, 17),
    "SplitToSequence, equal parts": (cut(-1, 3, axis=0), 17),
    "SplitToSequence, of a parameter": (cut(1, 2, trained=True, axis=0), 17),
    "SplitToSequence, sizes": (cut(1, [1, 2], axis=-1), 17),
    "SplitToSequence, single places": (cut(2, None, axis=2, keepdims=0), 17),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str) -> None:
    build, opset = CASES[name]
    g = Graph("g", opset)
    g.output(build(g, g.input("x", np.float64, [4, 2, 3])), np.float64)
    model = model_of_bytes(model_bytes(g))
    (out,) = (info.name for info in model.outputs)
    b = NetBuilder.from_desc(model.op_list())
    weights = b.input("weights", list(b.var(out).shape), "float64")
    b.backward_from(b.reduce_sum(b.mul(b.var(out), weights)))
    feed = {"x": normal(4, 2, 3)}
    weight = normal(*model.run(feed)[out].shape)
    trained = {key: value for key, value in model.parameters.items() if key in ("w", "r", "b")}
    assert trained
    for parameter, value in trained.items():
        gradient = b.gradient(parameter)
        found = b.run(model.scope, feed={**feed, "weights": weight}, fetch=[gradient])[gradient]
        step = 1e-6 * normal(*value.shape)
        ends = []
        for sign in (1, -1):
            model.scope.var(parameter).set(value + sign * step)
            ends.append(float((model.run(feed)[out] * weight).sum()))
        model.scope.var(parameter).set(value)
        wanted = (ends[0] - ends[1]) / 2
        np.testing.assert_allclose((found * step).sum(), wanted, rtol=1e-4, atol=1e-12)
