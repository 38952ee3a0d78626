"""OptimizedRNNStack beside PyTorch's layers, which fill cuDNN's buffer in the same order."""

import numpy as np
import pytest

import opscope.cntk.operators  # noqa: F401  registers them
from opscope.cntk.network.network import Network
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.layout import packed
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.run.runtime import CntkNet
from opscope.framework.base.errors import ShapeError
from opscope.testing import Case, OpTest

LENGTHS = np.array([3, 1, 4, 2])
LAYERS = {
    "lstm": ("LSTM", {}),
    "gru": ("GRU", {}),
    "rnnTanh": ("RNN", {"nonlinearity": "tanh"}),
    "rnnReLU": ("RNN", {"nonlinearity": "relu"}),
}


def minibatch(rows, lengths=LENGTHS):
    begin = np.append(0, np.cumsum(lengths))
    layout = packed(lengths)
    return Minibatch({"x": Samples(begin, rows)}, {"x": layout}, np.zeros((len(lengths), 2)))


def stack(operation, layers, both, axis=-1, shape=(3,), hidden=4):
    """A net of one stack, and the sum of its squares as a criterion."""
    network = Network("test")
    network.precision = "double"
    x = network.add("InputValue", "x", attributes={"shape": shape})
    weights = network.add(
        "LearnableParameter", "W", attributes={"shape": (0, 0), "init": "uniform"}
    )
    attributes = {"hiddenDims": hidden, "numLayers": layers, "bidirectional": both}
    attributes |= {"recurrentOp": operation, "axis": axis}
    out = network.add("OptimizedRNNStack", "out", [weights, x], attributes)
    network.add("SumElements", "total", [network.add("ElementTimes", "squares", [out, out])])
    network.validate()
    net = CntkNet(network)
    rng = np.random.default_rng(3)
    net.set("W", rng.uniform(-0.8, 0.8, net.get("W").shape))
    return net


def torch_layer(operation, layers, both, buffer, width=3, hidden=4):
    torch = pytest.importorskip("torch")
    kind, options = LAYERS[operation]
    layer = getattr(torch.nn, kind)(
        width, hidden, layers, bidirectional=both, dtype=torch.float64, **options
    )
    matrices = [p for name, p in layer.named_parameters() if name.startswith("weight")]
    biases = [p for name, p in layer.named_parameters() if name.startswith("bias")]
    at = 0
    with torch.no_grad():
        for p in matrices + biases:
            p.copy_(torch.from_numpy(buffer[at : at + p.numel()].reshape(p.shape)))
            at += p.numel()
    assert at <= len(buffer)
    return torch, layer, matrices + biases


@pytest.mark.parametrize("operation", LAYERS)
@pytest.mark.parametrize(("layers", "both"), [(1, False), (2, True)])
def test_like_torch(operation, layers, both):
    net = stack(operation, layers, both)
    rows = np.random.default_rng(0).normal(size=(LENGTHS.sum(), 3))
    batch = minibatch(rows)
    buffer = net.get("W").ravel(order="F")  # as CNTK's memory holds it
    torch, layer, parts = torch_layer(operation, layers, both, buffer)
    wanted = [
        layer(torch.from_numpy(part)[:, None])[0][:, 0]
        for part in np.split(rows, np.cumsum(LENGTHS)[:-1])
    ]
    found = net.forward(batch, ["out"])["out"].data
    np.testing.assert_allclose(found, torch.cat(wanted).detach().numpy(), atol=1e-12)
    torch.cat(wanted).square().sum().backward()
    net.forward_backward(batch, "total")
    gradient = np.concatenate([p.grad.numpy().ravel() for p in parts])
    np.testing.assert_allclose(net.gradient("W").ravel(order="F"), gradient, atol=1e-10)


def test_along_an_axis_of_samples():
    """Each sample [3 x 5] is a sequence of five steps. As CNTK infers them there are as many
    weights as for inputs of 15 elements; the last ones mean nothing."""
    net = stack("lstm", 2, True, axis=2, shape=(3, 5))
    rows = np.random.default_rng(0).normal(size=(10, 15))
    buffer = net.get("W").ravel(order="F")
    torch, layer, parts = torch_layer("lstm", 2, True, buffer)
    wanted = layer(torch.from_numpy(rows.reshape(10, 5, 3)).transpose(0, 1))[0].transpose(0, 1)
    value = net.forward(minibatch(rows), ["out"])["out"]
    assert value.shape == (8, 5)
    np.testing.assert_allclose(value.data, wanted.detach().numpy(), atol=1e-12)
    wanted.square().sum().backward()
    net.forward_backward(minibatch(rows), "total")
    gradient = np.zeros(len(buffer))
    used = np.concatenate([p.grad.numpy().ravel() for p in parts])
    gradient[: len(used)] = used
    np.testing.assert_allclose(net.gradient("W").ravel(order="F"), gradient, atol=1e-10)


def test_too_few_weights():
    net = stack("lstm", 1, False)
    node = net.network.find("W")
    node.shape = (4, 30)
    with pytest.raises(ShapeError, match="take 144 weights, W has 120"):
        net.forward(minibatch(np.zeros((10, 3))), ["out"])


class TestSplitSteps(OpTest):
    type = "cntk.split_steps"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4, 2))})
        yield Case({"x": rng.normal(size=(2, 1))})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        return {"out": x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])}


class TestJoinSteps(OpTest):
    type = "cntk.join_steps"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(12, 2)), "like": np.zeros((3, 4, 5))})
        yield Case({"x": rng.normal(size=6), "like": np.zeros((2, 3))})

    def reference(self, inputs, attrs):
        rows, steps = inputs["like"].shape[:2]
        return {"out": inputs["x"].reshape(rows, steps, *inputs["x"].shape[1:])}


@pytest.mark.parametrize(
    ("layers", "both", "told"),
    [
        (2, False, "its layers take 304 weights, W has 240"),
        (1, True, "its layers take 288 weights, W has 240"),
        (241, False, "241 layers have more than the 240 weights of W"),
        (121, True, "121 layers have more than the 240 weights of W"),
        (10**9, False, "1000000000 layers have more than the 240 weights of W"),
    ],
)
def test_more_layers_than_weights(layers, both, told):
    """They are counted before matrices for each of them are made."""
    network = Network("test")
    x = network.add("InputValue", "x", attributes={"shape": (3,)})
    weights = network.add("LearnableParameter", "W", attributes={"shape": (15, 16)})
    attributes = {"hiddenDims": 4, "numLayers": layers, "bidirectional": both}
    network.add("OptimizedRNNStack", "out", [weights, x], attributes | {"recurrentOp": "lstm"})
    network.validate()
    net = CntkNet(network)
    with pytest.raises(ShapeError, match=f"out .*{told}"):
        net.forward(minibatch(np.zeros((10, 3))), ["out"])
