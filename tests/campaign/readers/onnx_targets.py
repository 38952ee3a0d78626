"""The campaign's readers of ONNX files: models of layers, of shapes, of graphs inside nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing.model import from_onnx
from opscope.proto import onnx_pb2 as pb

from ..inputs import Target
from .mutate import BYTES, flip, message


def layers() -> Graph:
    """A small convolutional network whose shapes are computed by nodes."""
    g = Graph("layers")
    rng = np.random.default_rng(0)
    x = g.input("x", np.float32, ["N", 2, 6, 6])
    w = g.constant(rng.normal(size=(3, 2, 3, 3)), "w", np.float32)
    h = g.node("Conv", [x, w], "h", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    h = g.node("MaxPool", [g.node("Relu", [h])], kernel_shape=[2, 2], strides=[2, 2])
    rows = g.node("Gather", [g.node("Shape", [h]), g.constant(0, dtype=np.int64)], axis=0)
    shape = g.node("Concat", [g.node("Unsqueeze", [rows, g.ints(0)]), g.ints(-1)], axis=0)
    flat = g.node("Reshape", [h, shape])
    v = g.constant(rng.normal(size=(27, 16)), "v", np.float32)
    g.output(g.node("Softmax", [g.node("MatMul", [flat, v])], "y", axis=-1), np.float32)
    return g


def graphs() -> Graph:
    """A model with branches and a loop."""
    g = Graph("graphs")
    x, c = g.input("x", np.float32, [2, 3]), g.input("c", np.bool_, [])
    branches = []
    for name, op in (("then_branch", "Exp"), ("else_branch", "Neg")):
        branch = g.sub_graph(name)
        branch.output(branch.node(op, [x], f"{name}_y"), np.float32)
        branches.append(branch)
    y = g.node("If", [c], "y", then_branch=branches[0], else_branch=branches[1])
    body = g.sub_graph("body")
    for name, dtype, dims in (("i", np.int64, []), ("go", np.bool_, []), ("h", np.float32, [2, 3])):
        body.input(name, dtype, dims)
    body.output(body.node("Identity", ["go"], "go_on"), np.bool_)
    body.output(body.node("Add", ["h", x], "h_next"), np.float32)
    trips, true = g.constant(3, "trips", np.int64), g.constant(True, "true", np.bool_)
    g.output(g.node("Loop", [trips, true, y], "z", body=body), np.float32)
    return g


def _with_function(data: bytes) -> bytes:
    """A model that calls a function of its own."""
    model = pb.ModelProto.FromString(data)
    function = model.functions.add(name="Twice", domain="own", input=["a"], output=["b"])
    function.node.add(op_type="Add", input=["a", "a"], output=["b"])
    function.opset_import.add(version=17)
    model.opset_import.add(domain="own", version=1)
    model.graph.node.add(op_type="Twice", domain="own", input=["y"], output=["twice"])
    model.graph.output[0].name = "twice"
    return model.SerializeToString()


def _seeds(folder: Path) -> Sequence[bytes]:
    whole = model_bytes(layers())
    return [whole, model_bytes(graphs()), _with_function(whole)]


def _one_net(path: Path) -> None:
    """Read a model and lower it to operators, as training does."""
    model = from_onnx(path)
    if model.inputs:
        model.op_list({info.name: (2, *(info.shape or ())[1:]) for info in model.inputs})


def _layers(folder: Path) -> Sequence[bytes]:
    whole = model_bytes(layers())
    return [whole, _with_function(whole)]


TARGETS = (
    Target("onnx", ".onnx", _seeds, from_onnx, BYTES),
    Target("onnx message", ".onnx", _seeds, from_onnx, (message(pb.ModelProto), flip)),
    Target("onnx net", ".onnx", _layers, _one_net, (message(pb.ModelProto), flip)),
)
