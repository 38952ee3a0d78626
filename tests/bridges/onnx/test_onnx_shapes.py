"""A served model in ever new shapes: memory stays where it is."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import opscope

onnx = pytest.importorskip("onnx")
helper, arrays = onnx.helper, onnx.numpy_helper

SHAPES = 250


def convolutions(path: Path) -> opscope.OnnxModel:
    """A model of images of any width: convolutions, and a product for each column."""
    rng = np.random.default_rng(0)
    nodes, weights, value, channels = [], [], "x", 1
    for number in range(2):
        w = rng.normal(size=(8, channels, 3, 3)).astype("f4") / 5
        weights.append(arrays.from_array(w, f"w{number}"))
        nodes.append(helper.make_node("Conv", [value, f"w{number}"], [f"c{number}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        value, channels = f"r{number}", 8
    nodes.append(helper.make_node("ReduceMean", [value], ["m"], axes=[2], keepdims=0))
    nodes.append(helper.make_node("Transpose", ["m"], ["t"], perm=[0, 2, 1]))
    weights.append(arrays.from_array(rng.normal(size=(8, 10)).astype("f4"), "last"))
    nodes.append(helper.make_node("MatMul", ["t", "last"], ["y"]))
    x = helper.make_tensor_value_info("x", 1, ["N", 1, 4, "W"])
    y = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return opscope.from_onnx(path)


def test_250_shapes_take_the_memory_of_32(tmp_path: Path) -> None:
    model = convolutions(tmp_path / "m.onnx")
    widths = np.random.default_rng(0).permutation(SHAPES) + 100
    widths[0] = SHAPES + 99  # the blocks of temporaries are those of the largest

    def run(width: int) -> None:
        made = model.run({"x": np.zeros((1, 1, 4, width), np.float32)})["y"]
        assert made.shape == (1, width, 10)

    tracemalloc.start()
    try:
        for width in widths[:32]:
            run(width)
        early, peak_early = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for number, width in enumerate(widths[32:]):
            run(width)
            if number % 32 == 0:
                gc.collect()  # the heap of a whole run of tests is collected late
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * peak_early, (early, peak_early, peak)
