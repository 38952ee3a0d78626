"""Operators of nnet3: nonlinearities of recurrent cells, convolution and pooling of images."""

import numpy as np
import pytest

import opscope.nnet3.components  # noqa: F401  (registers the operators)
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.plain_net import PlainNet
from opscope.operators.base import blocks
from opscope.testing import Case, OpTest


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class TestLstm(OpTest):
    type = "nnet3.lstm"
    grad = ("x", "w")

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(4, 15)), "w": rng.normal(size=(3, 3))})

    def reference(self, inputs, attrs):
        i, f, c, o, before = np.split(inputs["x"][:, :15], 5, axis=1)
        scales = inputs["x"][:, 15:] if inputs["x"].shape[1] > 15 else np.ones((len(i), 3))
        w = inputs["w"]
        kept = sigmoid(f + w[1] * before) * scales[:, 1:2] * before
        cell = kept + sigmoid(i + w[0] * before) * scales[:, :1] * np.tanh(c)
        out = sigmoid(o + w[2] * cell) * scales[:, 2:] * np.tanh(cell)
        return {"out": np.concatenate((cell, out), axis=1)}

    def test_refuses(self):
        self.refuses("15 or 18 columns", {"x": np.zeros((2, 16)), "w": np.zeros((3, 3))})
        self.refuses("rows of w and 3", {"x": np.zeros((2, 15)), "w": np.zeros((2, 3))})


class TestLstmWithDropout(TestLstm):
    """Three columns more are factors of the gates, to which no gradient passes."""

    grad = ("w",)

    def cases(self, rng):
        x = np.concatenate((rng.normal(size=(4, 15)), rng.integers(0, 2, (4, 3))), axis=1)
        yield Case({"x": x, "w": rng.normal(size=(3, 3))})


def lstm_gradient(x, w, repair, grad):
    """Kaldi's gradient of an LSTM with self-repair, step by step."""
    i, f, part, o, before = np.split(x, 5, axis=1)
    i, f, g = sigmoid(i + w[0] * before), sigmoid(f + w[1] * before), np.tanh(part)
    c = f * before + i * g
    o, t = sigmoid(o + w[2] * c), np.tanh(c)
    d_c, d_m = np.split(grad, 2, axis=1)
    d_o = o * (1 - o) * t * d_m - (2 * o - 1) * repair[3]
    d_c = (1 - t * t) * o * d_m + d_c + d_o * w[2] - t * repair[4]
    d_f = d_c * before * f * (1 - f) - (2 * f - 1) * repair[1]
    d_i = d_c * g * i * (1 - i) - (2 * i - 1) * repair[0]
    d_part = (1 - g * g) * i * d_c - g * repair[2]
    d_before = w[0] * d_i + w[1] * d_f + f * d_c
    d_w = [(before * d_i).sum(0), (before * d_f).sum(0), (c * d_o).sum(0)]
    return np.concatenate((d_i, d_f, d_part, d_o, d_before), axis=1), np.array(d_w)


def test_self_repair_of_an_lstm():
    rng = np.random.default_rng(0)
    shapes = {"x": (4, 15), "w": (3, 3), "repair": (5, 3), "grad": (4, 6)}
    arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    net = PlainNet(OpList())
    for name, array in arrays.items():
        net.add_var(make_var(name, array.shape, "float64", INPUT))
    net.add_op("nnet3.lstm", {"x": "x", "w": "w", "repair": "repair"}, {"out": "out"})
    names = net.add_backward_ops({"out": "grad"}, wrt=["x", "w"])
    scope = Scope()
    scope.feed(arrays)
    net.run(scope)
    wanted = lstm_gradient(**arrays)
    np.testing.assert_allclose(scope.numpy(names["x"]), wanted[0], atol=1e-12)
    np.testing.assert_allclose(scope.numpy(names["w"]), wanted[1], atol=1e-12)


class TestGru(OpTest):
    type = "nnet3.gru"
    grad = ("x", "w")

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(4, 13)), "w": rng.normal(size=(3, 2))})
        yield Case({"x": rng.normal(size=(4, 12)), "w": rng.normal(size=(3, 3))})
        yield Case({"x": rng.normal(size=(4, 9)), "w": rng.normal(size=(3, 0))})  # no recurrence

    def reference(self, inputs, attrs):
        cells, recurrent = inputs["w"].shape
        edges = np.cumsum((cells, recurrent, cells, cells))
        z, r, part, before, state = np.split(inputs["x"], edges, axis=1)
        if cells == recurrent:
            state = before
        h = np.tanh(part + (r * state) @ inputs["w"].T)
        return {"out": np.concatenate((h, (1 - z) * h + z * before), axis=1)}

    def test_refuses(self):
        self.refuses("13 columns", {"x": np.zeros((2, 12)), "w": np.zeros((3, 2))})
        self.refuses("12 columns", {"x": np.zeros((2, 13)), "w": np.zeros((3, 3))})


class TestOutputGru(OpTest):
    type = "nnet3.output_gru"
    grad = ("x", "w")

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(4, 9)), "w": rng.normal(size=3)})

    def reference(self, inputs, attrs):
        z, part, before = np.split(inputs["x"], 3, axis=1)
        h = np.tanh(part + inputs["w"] * before)
        return {"out": np.concatenate((h, (1 - z) * h + z * before), axis=1)}

    def test_refuses(self):
        self.refuses("9 columns", {"x": np.zeros((2, 8)), "w": np.zeros(3)})


class TestConvolution(OpTest):
    type = "nnet3.convolution"
    grad = ("x", "w", "b")

    def cases(self, rng):
        given = {
            "x": rng.normal(size=(3, 5 * 4 * 2)),
            "w": rng.normal(size=(3, 3 * 2 * 2)),
            "b": rng.normal(size=3),
        }
        common = {"size": [5, 4, 2], "filter": [3, 2], "step": [2, 1]}
        for order in ("zyx", "yzx"):
            yield Case(given, common | {"order": order})

    def reference(self, inputs, attrs):
        x = inputs["x"].reshape(-1, 5, 4, 2)
        if attrs["order"] == "yzx":
            x = inputs["x"].reshape(-1, 5, 2, 4).swapaxes(2, 3)
        w = inputs["w"].reshape(-1, 3, 2, 2)
        out = [
            np.einsum("nxyz,fxyz->nf", x[:, i : i + 3, j : j + 2], w) + inputs["b"]
            for i in (0, 2)
            for j in (0, 1, 2)
        ]
        return {"out": np.concatenate(out, axis=1)}

    def test_refuses(self):
        given = {"x": np.zeros((2, 40)), "w": np.zeros((3, 12)), "b": np.zeros(3)}
        attrs = {"size": [5, 4, 2], "filter": [3, 2], "step": [2, 1]}
        self.refuses("do not cover", given, attrs | {"filter": [4, 2]})
        self.refuses("size wants 3", given, attrs | {"size": [5, 8]})
        self.refuses("columns of x", given | {"x": np.zeros((2, 41))}, attrs)
        self.refuses("size of a filter", given | {"w": np.zeros((3, 11))}, attrs)


class TestConvolutionInChunks(TestConvolution):
    """The same with too little memory for the patches of all rows at once."""

    @pytest.fixture(autouse=True)
    def _little_memory(self, monkeypatch):
        monkeypatch.setattr(blocks, "CHUNK_BYTES", 700)


class TestMaxPool(OpTest):
    type = "nnet3.max_pool"
    grad = ("x",)

    def cases(self, rng):
        x = rng.permutation(3 * 40).reshape(3, 40) / 7.0
        yield Case({"x": x}, {"size": [5, 4, 2], "pool": [3, 2, 1], "step": [2, 1, 1]})
        yield Case({"x": x}, {"size": [5, 4, 2], "pool": [1, 2, 2], "step": [1, 2, 2]})

    def reference(self, inputs, attrs):
        x = inputs["x"].reshape(-1, *attrs["size"])
        windows = np.lib.stride_tricks.sliding_window_view(x, attrs["pool"], axis=(1, 2, 3))
        a, b, c = attrs["step"]
        out = windows[:, ::a, ::b, ::c].max(axis=(4, 5, 6))
        return {"out": out.reshape(len(x), np.prod(out.shape[1:]))}

    def test_refuses(self):
        attrs = {"size": [5, 4, 2], "pool": [2, 2, 1], "step": [2, 1, 1]}
        self.refuses("do not cover", {"x": np.zeros((2, 40))}, attrs)
        self.refuses(
            "pool wants 3", {"x": np.zeros((2, 40))}, attrs | {"pool": [5, 4], "step": [1, 1]}
        )
