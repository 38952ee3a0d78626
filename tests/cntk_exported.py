"""Networks of CNTK that tests export, to ONNX and PyTorch, and the slot filler that it trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cntk_random_nets import make, random_network
from cntk_runtime_nets import Builder
from opscope.cntk.ndl.builder import build_ndl_file
from opscope.cntk.readers.base.data import Stream
from opscope.cntk.readers.base.order import FileOrder
from opscope.cntk.readers.base.pack import Minibatch, SequencePacker
from opscope.cntk.readers.text.format import TextFormat, TextStream
from opscope.cntk.run.runtime import CntkNet
from reference_folders import DATA

SLOTS = {"query": 943, "slotLabels": 129}
"""The streams of the slot filler, and how many classes they are of."""
NDL = """
run = DNN
DNN = [
    features = Input(4)
    labels = Input(3)
    m = Mean(features)
    d = InvStdDev(features)
    n = PerDimMeanVarNormalization(features, m, d)
    W = Parameter(5, 4)
    b = Parameter(5, init=fixedValue, value=0.25)
    t = Times(W, n)
    p = Plus(t, b)
    h = Sigmoid(p)
    k = Dropout(h)
    V = Parameter(3, 5, learningRateMultiplier=0)
    z = Times(V, k)
    ce = CrossEntropyWithSoftmax(labels, z)
    FeatureNodes = (features)
    LabelNodes = (labels)
    CriterionNodes = (ce)
    OutputNodes = (z)
]
"""


def feed_forward_net(folder: Path) -> CntkNet:
    """The network of `NDL`, which lies in the folder as n.ndl, with statistics of features."""
    (folder / "n.ndl").write_text(NDL)
    network = build_ndl_file(folder / "n.ndl").network
    network.validate()
    net = CntkNet(network)
    net.set("m", np.arange(4.0))
    net.set("d", np.arange(1.0, 5.0))
    return net


def random_net(seed: int) -> tuple[CntkNet, list[str]]:
    """A random recurrent network, and its nodes that no other one reads; or the test is skipped."""
    built = random_network(np.random.default_rng(seed), future=bool(seed % 2))
    if built is None:
        pytest.skip("its loops cannot be run")
    net = make(built)
    used = {child for node in net.network.nodes.values() for child in node.inputs}
    roots = [n for n in net.network.nodes.values() if n.inputs and n not in used]
    roots = [n.inputs[0] if n.axis is None else n for n in roots]
    return net, list(dict.fromkeys(node.name for node in roots))


def loop_net(delay: str, steps: int) -> CntkNet:
    """h = tanh(W x + R h), of so many steps before or after."""
    b = Builder()
    x = b.add("InputValue", "x", shape=2)
    before = b.add(delay, "before", shape=3, timeStep=steps, defaultHiddenActivation=0.2)
    own = b.add("Times", "own", b.parameter("R", 3, 3), before)
    up = b.add("Times", "up", b.parameter("W", 3, 2), x)
    h = b.add("Tanh", "h", b.add("Plus", "z", up, own))
    b.network.connect(before, [h])
    return b.net()


def slot_filler() -> Path:
    """The model that CNTK trained; the test is skipped where it is absent."""
    path = DATA / "cntk" / "slu.forward.cmf"
    if not path.exists():
        pytest.skip("the model is not there")
    return path


def slot_minibatches(size: int) -> Iterator[Minibatch]:
    """All of the slot filler's test data."""
    streams = [
        TextStream(Stream(name, width, sparse=True), alias)
        for (name, width), alias in zip(SLOTS.items(), ("S0", "S2"), strict=True)
    ]
    source = TextFormat(DATA / "cntk" / "atis.test.ctf", streams)
    packer = SequencePacker(FileOrder(source), source.streams)
    packer.start_epoch(0, size)
    while minibatch := packer.read():
        yield minibatch
        if minibatch.end_of_epoch:
            break


def slot_sentences() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The sentences of the slot filler's test data and their labels, one-hot."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in SLOTS}
    for minibatch in slot_minibatches(11000):
        for name, width in SLOTS.items():
            samples = minibatch.streams[name]
            found[name] += np.split(samples.dense(width).astype(np.float32), samples.begin[1:-1])
    return found["query"], found["slotLabels"]
