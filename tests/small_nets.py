"""Small nets and data for the tests of training and of the command line."""

from __future__ import annotations

import numpy as np

from opscope.framework.ir.desc import INPUT, OPTIMIZE, PARAMETER, STATE, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.plain_net import PlainNet

FEATURES, CLASSES = 6, 3


def fill(name: str, op_type: str, shape: tuple[int, ...], **attrs: float):
    """An initializer of variable `name`."""
    given = {"shape": list(shape), "dtype": np.dtype("float32"), **attrs}
    return make_op(op_type, {}, {"out": name}, given)


def classifier(*, rate: float = 0.1, dropout: float = 0.3, update: bool = True) -> PlainNet:
    """x [-1, 6] -> affine, relu, dropout, affine -> scores; loss; updates with momentum."""
    net = PlainNet(OpList(name="classifier"))
    net.add_var(make_var("x", [-1, FEATURES], "float32", INPUT))
    net.add_var(make_var("label", [-1], "int64", INPUT))
    sizes = (FEATURES, 8, CLASSES)
    parameters = {}
    for layer, (rows, cols) in enumerate(zip(sizes, sizes[1:], strict=False)):
        w, b = f"w{layer}", f"b{layer}"
        uniform = fill(w, "uniform_random", (rows, cols), low=-0.5, high=0.5)
        parameters[w] = (rows, cols), uniform
        parameters[b] = (cols,), fill(b, "fill_constant", (cols,), value=0.0)
    for name, (shape, init) in parameters.items():
        net.add_var(make_var(name, shape, "float32", PARAMETER, initializer=init))
    net.add_op("affine", {"x": "x", "w": "w0", "b": "b0"}, {"out": "h0"})
    net.add_op("relu", {"x": "h0"}, {"out": "h1"})
    net.add_op("dropout", {"x": "h1"}, {"out": "h2", "mask": "mask"}, {"p": dropout})
    net.add_op("affine", {"x": "h2", "w": "w1", "b": "b1"}, {"out": "scores"})
    losses = {"out": "losses", "softmax": "probabilities"}
    net.add_op("softmax_cross_entropy", {"x": "scores", "label": "label"}, losses)
    net.add_op("reduce_mean", {"x": "losses"}, {"out": "loss"})
    net.add_op("reduce_max", {"x": "losses"}, {"out": "worst"})
    if update:
        net.add_backward_ops(["loss"])
        for name, (shape, _) in parameters.items():
            add_momentum(net, name, shape, rate)
    return net


def add_momentum(net: PlainNet, name: str, shape: tuple[int, ...], rate: float) -> None:
    """v = 0.9 v + gradient; parameter = parameter - rate v."""
    state = f"{name}@V"
    zeros = fill(state, "fill_constant", shape, value=0.0)
    net.add_var(make_var(state, shape, "float32", STATE, initializer=zeros))

    def add(op_type, inputs, out, attrs=None):
        net.add_op(make_op(op_type, inputs, {"out": out}, attrs, role=OPTIMIZE))

    add("scale", {"x": state}, f"{state}1", {"scale": 0.9})
    add("add", {"x": f"{state}1", "y": f"{name}@GRAD"}, state)
    add("scale", {"x": state}, f"{state}2", {"scale": -rate})
    add("add", {"x": name, "y": f"{state}2"}, name)


def data(rows: int = 60, seed: int = 0) -> dict[str, np.ndarray]:
    """Points around three corners, and which corner."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, CLASSES, rows)
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    x[np.arange(rows), label] += 2
    return {"x": x, "label": label}
