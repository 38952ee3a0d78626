"""Nodes one by one: values against NumPy in CNTK's column-major terms, gradients by differences.

Case 33 of the reference results covers most of the others.
"""

from __future__ import annotations

import numpy as np
import pytest

from cntk_runtime_nets import LENGTHS, Builder, check_gradients, data, minibatch
from opscope.cntk.readers.base.data import Samples

ROWS = int(LENGTHS.sum())


def columns(value):
    """A value with samples as CNTK's matrix, a column for each sample."""
    return value.data.reshape(len(value.data), -1).T


# name: (operation, shapes of parameters, order of the inputs (x, then parameters by number),
#        attributes, reference of the values [elements, columns], or None)
def shifted(reference):
    """A reference of the sum of x and the parameter."""
    return lambda x, w: reference(x + w[:, None])


def cosine(x, w):
    y = x + w[:, None]
    return (x * y).sum(0) / np.linalg.norm(x, axis=0) / np.linalg.norm(y, axis=0)


NODES = {
    "transposed vector": ("TransposeTimes", [(4,)], "0x", {}, lambda x, w: w[None] @ x),
    "tensor": (
        "Times",
        [(2, 3, 4)],
        "0x",
        {"outputRank": 2},
        lambda x, w: np.einsum("abi,in->abn", w, x).reshape(6, -1, order="F"),
    ),
    "parameters alone": ("Times", [(2, 3), (3, 2)], "01", {}, None),
    "samples on the left": ("TransposeTimes", [(4,)], "x0", {}, lambda x, w: w @ x),
    "diagonal": ("DiagTimes", [(4, 1)], "0x", {}, lambda x, w: w * x),
    "all products": (
        "KhatriRaoProduct",
        [(3,)],
        "x0",
        {},
        lambda x, w: np.einsum("in,j->ijn", x, w).reshape(12, -1, order="F"),
    ),
    "sum of a column": ("SumColumnElements", [(4,)], "s", {}, shifted(lambda y: y.sum(0))),
    "repeated": (
        "RowRepeat",
        [(4,)],
        "s",
        {"numRepeats": 3},
        shifted(lambda y: np.tile(y, (3, 1))),
    ),
    "stack with a parameter": (
        "RowStack",
        [(2,)],
        "0x",
        {"axis": 1},
        lambda x, w: np.concatenate([np.broadcast_to(w[:, None], (2, x.shape[1])), x]),
    ),
    "stack along a new axis": (
        "RowStack",
        [(4,)],
        "xs",
        {"axis": 2},
        lambda x, w: np.concatenate([x, x + w[:, None]]),
    ),
    "legacy reshape": ("LegacyReshape", [(4,)], "s", {"numRows": 4}, shifted(lambda y: y)),
    "slice from the end": (
        "Slice",
        [(4,)],
        "s",
        {"beginIndex": -3, "endIndex": 0},
        shifted(lambda y: y[1:]),
    ),
    "cosine": ("CosDistance", [(4,)], "xs", {}, cosine),
    "logarithm of a sum": (
        "ReduceElements",
        [(4,)],
        "s",
        {"reductionOp": "LogSum", "axis": 1},
        shifted(lambda y: np.logaddexp.reduce(y, 0)),
    ),
}


def single(which):
    operation, shapes, order, attributes, reference = NODES[which]
    b = Builder()
    x = b.add("InputValue", "x", shape=4)
    parameters = [b.parameter(f"p{k}", *shape) for k, shape in enumerate(shapes)]
    table = {"x": x, **{str(k): p for k, p in enumerate(parameters)}}
    if "s" in order:
        table["s"] = b.add("Plus", "shifted", x, parameters[0])
    b.criterion(b.add(operation, "node", *(table[c] for c in order), **attributes))
    return b.net(), data(b.rng, 4, ROWS), reference


@pytest.mark.parametrize("which", NODES)
def test_node(which):
    net, rows, reference = single(which)
    batch = minibatch(x=rows)
    if reference is not None:
        found = columns(net.forward(batch, ["node"])["node"])
        wanted = reference(rows.T, net.get("p0")).reshape(found.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    check_gradients(net, batch)


def test_matrices():
    """Values without samples are matrices in CNTK's order."""
    b = Builder()
    a, c = b.parameter("A", 3, 4), b.parameter("C", 4, 2)
    b.add("Times", "product", a, c)
    b.add("TransposeDimensions", "turned", a)
    b.add("Softmax", "soft", a)
    b.add("Slice", "cut", a, beginIndex=1, endIndex=3, axis=2)
    square = b.parameter("S", 3, 3)
    b.add("Diagonal", "diagonal", square)
    x = b.add("InputValue", "x", shape=1)
    b.add("Times", "used", x, x)
    net = b.net()
    names = ("product", "turned", "soft", "cut", "diagonal")
    found = {n: v.data.T for n, v in net.forward(minibatch(x=np.ones((ROWS, 1))), names).items()}
    A = net.get("A")
    np.testing.assert_allclose(found["product"], A @ net.get("C"))
    np.testing.assert_allclose(found["turned"], A.T)
    np.testing.assert_allclose(found["soft"], np.exp(A) / np.exp(A).sum(0))
    np.testing.assert_allclose(found["cut"], A[:, 1:3])
    np.testing.assert_allclose(found["diagonal"], np.diag(net.get("S"))[None])


@pytest.mark.parametrize("operation", ["InputValue", "SparseInputValue"])
def test_look_up_of_two_words(operation):
    b = Builder()
    words = b.add(operation, "x", shape=10)
    b.criterion(b.add("LookupTable", "node", b.parameter("E", 3, 5), words))
    net, rng = b.net(), np.random.default_rng(1)
    numbers = rng.integers(0, 5, (ROWS, 2))
    first = np.arange(0, 2 * ROWS + 1, 2)
    begin = np.append(0, np.cumsum(LENGTHS))
    samples = Samples(begin, np.ones(2 * ROWS), (numbers + [0, 5]).reshape(-1), first)
    batch = minibatch(x=samples)
    E = net.get("E")
    wanted = np.concatenate([E[:, numbers[:, 0]], E[:, numbers[:, 1]]])
    np.testing.assert_allclose(columns(net.forward(batch, ["node"])["node"]), wanted)
    check_gradients(net, batch)


def test_negative_samples():
    b = Builder()
    x, y = (b.add("InputValue", name, shape=4) for name in "xy")
    shifted = b.add("Plus", "shifted", x, b.parameter("p", 4))
    constants = [b.constant("shift", 2), b.constant("count", 3)]
    b.criterion(b.add("CosDistanceWithNegativeSamples", "node", shifted, y, *constants))
    net, rng = b.net(), np.random.default_rng(2)
    batch = minibatch(x=data(rng, 4), y=data(rng, 4))
    assert net.forward(batch, ["node"])["node"].data.shape == (ROWS, 4)
    check_gradients(net, batch)


def test_choice_and_limits():
    b = Builder()
    x = b.add("InputValue", "x", shape=3)
    shifted = b.add("Plus", "shifted", x, b.parameter("p", 3))
    low, high = b.constant("low", -0.4), b.constant("high", 0.6)
    clipped = b.add("Clip", "clipped", low, high, shifted)
    positive = b.add("Greater", "positive", x, b.constant("zero", 0))
    b.criterion(b.add("If", "node", positive, clipped, b.parameter("q", 3)))
    net, rng = b.net(), np.random.default_rng(3)
    rows = data(rng, 3)
    found = net.forward(minibatch(x=rows), ["node"])["node"].data
    wanted = np.where(rows > 0, np.clip(rows + net.get("p"), -0.4, 0.6), net.get("q"))
    np.testing.assert_allclose(found, wanted)
    check_gradients(net, minibatch(x=rows))


@pytest.mark.parametrize("spatial", [False, True])
def test_batch_normalization_trains(spatial):
    b = Builder()
    x = b.add("InputValue", "x", shape=(2, 3, 4))
    scaled = b.add("ElementTimes", "scaled", x, b.parameter("s", 2, 3, 4))
    count = 4 if spatial else 24
    own = [b.parameter(name, count, 1) for name in ("scale", "bias")]
    running = [
        b.add("LearnableParameter", name, shape=(count, 1), init="fixedValue", value=value,
              learningRateMultiplier=0)
        for name, value in (("mean", 0.0), ("variance", 1.0))
    ]  # fmt: skip
    node = b.add("BatchNormalization", "node", scaled, *own, *running, spatial=spatial,
                 normalizationTimeConstant=20.0)  # fmt: skip
    b.criterion(node)
    net, rows = b.net(), data(b.rng, 24)
    batch = minibatch(x=rows)
    net.forward_backward(batch, "total")
    values = (rows.reshape(ROWS, 4, 3, 2) * net.get("s").transpose()).reshape(ROWS, count, -1)
    np.testing.assert_allclose(net.get("mean")[:, 0], values.mean((0, 2)))
    before = net.get("mean")
    frozen = net.forward(batch, ["node"])["node"].data.reshape(ROWS, count, -1)
    inverse = 1 / np.sqrt(net.get("variance") + 1e-5)
    wanted = net.get("scale") * (values - before) * inverse + net.get("bias")
    np.testing.assert_allclose(frozen, wanted)
    np.testing.assert_array_equal(net.get("mean"), before)
    net.store()
    assert b.network.find("node").attributes["samplesSeen"] == ROWS


def test_dropout_and_what_trains():
    b = Builder()
    x = b.add("InputValue", "x", shape=50)
    b.add("Dropout", "node", x, dropoutRate=0.5)
    trains = b.add("EnvironmentInput", "trains", propertyName="isTraining")
    b.add("Plus", "flag", trains, b.constant("zero", 0))
    net = b.net()
    batch = minibatch(x=np.ones((ROWS, 50)))
    for train in (False, True):
        values = net.forward(batch, ["node", "flag"], train=train)
        assert values["flag"].scalar == train
        assert set(np.unique(values["node"].data)) == ({0.0, 2.0} if train else {1.0})


def test_epoch_accumulator():
    b = Builder()
    b.add("EpochAccumulator", "node", b.add("InputValue", "x", shape=3))
    net, rows = b.net(), data(np.random.default_rng(4), 3)
    for begin, end in ((0, 4), (4, 10)):
        part = rows[begin:end]
        value = net.forward(minibatch(np.ones(len(part), int), x=part), ["node"])["node"]
    np.testing.assert_allclose(value.data, rows.mean(0))
    net.start_epoch()
    part = minibatch(np.ones(2, int), x=rows[:2])
    np.testing.assert_allclose(net.forward(part, ["node"])["node"].data, rows[:2].mean(0))


def test_old_image_nodes():
    b = Builder()
    x = b.add("InputValue", "x", shape=(4, 6, 2))
    scaled = b.add("ElementTimes", "scaled", x, b.parameter("s", 4, 6, 2))
    window = {"windowWidth": 2, "windowHeight": 3, "horizontalSubsample": 2,
              "verticalSubsample": 3, "imageLayout": "CHW"}  # fmt: skip
    largest = b.add("MaxPooling", "largest", scaled, **window)
    mean = b.add("AveragePooling", "mean", scaled, **window)
    back = b.add("MaxUnpooling", "back", largest, scaled, kernelShape=(2, 3), strideShape=(2, 3),
                 dimPadding=(False,))  # fmt: skip
    b.criterion(b.add("RowStack", "all", *(
        b.add("Reshape", f"flat{k}", node, shape=(0,)) for k, node in enumerate((mean, back))
    )))  # fmt: skip
    net, rows = b.net(), data(b.rng, 48)
    batch = minibatch(x=rows)
    scaled = rows.reshape(ROWS, 2, 6, 4) * net.get("s").transpose()
    parts = scaled.reshape(ROWS, 2, 2, 3, 2, 2)
    values = net.forward(batch, ["largest", "mean", "back"])
    np.testing.assert_allclose(values["largest"].data, parts.max((3, 5)))
    np.testing.assert_allclose(values["mean"].data, parts.mean((3, 5)))
    kept = scaled * (parts == parts.max((3, 5), keepdims=True)).reshape(scaled.shape)
    np.testing.assert_allclose(values["back"].data, kept)
    check_gradients(net, batch)
