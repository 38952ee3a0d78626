"""What PyTorch exports runs here as it does there, with any number of rows."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing.model import OnnxModel, model_of_bytes

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")


class Sequences(torch.nn.Module):
    """Convolution over time, then recurrent layers both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv1d(3, 8, 3, padding=1)
        self.lstm = torch.nn.LSTM(8, 6, 2, bidirectional=True, batch_first=True)
        self.out = torch.nn.Linear(12, 4)

    def forward(self, x: Any) -> Any:
        hidden, _ = self.lstm(torch.relu(self.conv(x)).transpose(1, 2))
        return torch.log_softmax(self.out(hidden), -1)


class Images(torch.nn.Module):
    """Layers of vision, shapes computed in the graph among them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, 2, 1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.group = torch.nn.GroupNorm(2, 8)
        self.up = torch.nn.ConvTranspose2d(8, 4, 3, 2, 1, 1)
        self.out = torch.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        functional = torch.nn.functional
        hidden = functional.silu(self.norm(self.conv(x)))
        hidden = functional.max_pool2d(functional.gelu(self.group(hidden)), 2, ceil_mode=True)
        hidden = functional.interpolate(hidden, scale_factor=2, mode="bilinear")
        hidden = functional.pad(self.up(hidden), (1, 2, 0, 1))
        hidden = torch.cat([hidden[:, 2:], hidden[:, :2]], 1).view(x.shape[0], 4, -1)
        return self.out(hidden.mean(2))


class Words(torch.nn.Module):
    """A small transformer that sees what came before."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(20, 16), torch.nn.Embedding(32, 16)
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Any) -> Any:
        count = x.shape[1]
        mask = torch.triu(torch.full((count, count), float("-inf")), 1)
        hidden = self.words(x) + self.places(torch.arange(count))[None]
        return self.layers(hidden, mask=mask) @ self.words.weight.T


CASES = {
    "sequences": (Sequences, lambda n: torch.randn(n, 3, 9)),
    "images": (Images, lambda n: torch.randn(n, 3, 20, 22)),
    "words": (Words, lambda n: torch.randint(0, 20, (n, 7))),
}


def exported(net: Any, x: Any) -> OnnxModel:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net,
            (x,),
            file,
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "n"}},
            opset_version=17,
        )
    return model_of_bytes(file.getvalue())


@pytest.mark.parametrize("name", CASES)
def test_exported(name: str) -> None:
    make, draw = CASES[name]
    torch.manual_seed(0)
    net = make().eval()
    model = exported(net, draw(2))
    for rows in (1, 3):
        x = draw(rows)
        with torch.no_grad():
            wanted = net(x).numpy()
        found = model.run({"x": x.numpy()})["y"]
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        assert model.is_one_net({"x": x.numpy()})
    assert model.op_list({"x": (-1, *draw(1).shape[1:])}).ops


def statistics(g: Graph, x: str) -> list[str]:
    """Mean and variance that nodes compute, as PyTorch's exporter writes normalized weights."""
    axes = [0, 2]
    mean = g.node("ReduceMean", [x], axes=axes, keepdims=0)
    centered = g.node("Sub", [x, g.node("ReduceMean", [x], axes=axes, keepdims=1)])
    square = g.node("Mul", [centered, centered])
    return [mean, g.node("ReduceMean", [square], axes=axes, keepdims=0)]


@pytest.mark.parametrize("rows", (1, 2))
@pytest.mark.parametrize("how", ("training", "training, running outputs", "computed statistics"))
@pytest.mark.parametrize("of", ("an input", "a parameter"))
def test_gradients_through_the_statistics_of_a_batch(of: str, how: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    shapes = {"x": (rows, 3, 4), "scale": (3,), "bias": (3,)}
    values = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    g = Graph("g", 17)
    x = g.input("x", np.float64, list(shapes["x"])) if of == "an input" else ""
    x = x or g.constant(values["x"], "x")
    scale, bias = (g.constant(values[name], name) for name in ("scale", "bias"))
    if how == "computed statistics":
        inputs, options = [x, scale, bias, *statistics(g, x)], {}
    else:
        running = [g.constant(v, n) for n, v in (("mean", np.zeros(3)), ("var", np.ones(3)))]
        inputs, options = [x, scale, bias, *running], {"training_mode": 1}
    outputs = ["y", "new_mean", "new_var"] if "outputs" in how else ["y"]
    g.node("BatchNormalization", inputs, outputs=outputs, **options)
    g.output("y", np.float64)
    model = model_of_bytes(model_bytes(g))
    feed = {"x": values["x"]} if of == "an input" else {}
    b = NetBuilder.from_desc(model.op_list())
    weight = rng.normal(size=shapes["x"])
    weights = b.input("weights", list(weight.shape), "float64")
    b.backward_from(b.reduce_sum(b.mul(b.var("y"), weights)), wrt=list(values))
    fetch = {name: b.gradient(name) for name in values}
    made = b.run(model.scope, feed=feed | {"weights": weight}, fetch=list(fetch.values()))
    leaves = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    wanted = torch.nn.functional.batch_norm(
        leaves["x"], None, None, leaves["scale"], leaves["bias"], training=True, eps=1e-5
    )
    np.testing.assert_allclose(model.run(feed)["y"], wanted.detach(), rtol=1e-12, atol=1e-12)
    (wanted * torch.tensor(weight)).sum().backward()
    for name, leaf in leaves.items():
        np.testing.assert_allclose(made[fetch[name]], leaf.grad, rtol=1e-9, atol=1e-10)
