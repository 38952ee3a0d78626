"""Random recurrent networks: sequences do not see each other, however they are put together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opscope.cntk.network.network import Network
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.layout import Layout, packed
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.run.runtime import CntkNet
from opscope.framework.base.errors import CycleError

DIM = 3


def random_network(rng, future):
    """A network over x and y with delays in and out of loops; None where its loops cannot be run.

    `future`: whether it may look ahead.
    """
    network = Network("random")
    network.precision = "double"
    values, nodes, open_delays = {}, [], []

    def add(operation, *inputs, **attributes):
        return network.add(operation, f"n{len(network.nodes)}", inputs, attributes)

    def parameter(*shape):
        node = add("LearnableParameter", shape=shape, init="fixedValue")
        values[node.name] = rng.uniform(-0.6, 0.6, shape)
        return node

    def delay(operation, *inputs):
        steps, start = int(rng.integers(1, 4)), float(rng.uniform(-1, 1))
        return add(operation, *inputs, shape=DIM, timeStep=steps, defaultHiddenActivation=start)

    for name in "xy":
        nodes.append(network.add("InputValue", name, shape=DIM))
    for _ in range(int(rng.integers(6, 16))):
        one, other = (nodes[int(rng.integers(len(nodes)))] for _ in range(2))
        match int(rng.integers(9)):
            case 0 | 1:
                made = add(str(rng.choice(["Plus", "Minus", "ElementTimes"])), one, other)
            case 2:
                made = add("Times", parameter(DIM, DIM), one)
            case 3:
                made = add("Plus", one, parameter(int(rng.choice([1, DIM]))))
            case 4:
                made = add(str(rng.choice(["Tanh", "Sigmoid", "Softmax"])), one)
            case 5:
                made = delay("FutureValue" if future and rng.random() < 0.5 else "PastValue", one)
            case 6:
                made = delay("PastValue")
                open_delays.append(made)
            case 7:
                cut = int(rng.integers(1, DIM))
                parts = [
                    add("Slice", node, beginIndex=begin, endIndex=end)
                    for node, begin, end in ((one, 0, cut), (other, cut, DIM))
                ]
                made = add("RowStack", *parts)
            case _:
                made = add("PastValue", one, parameter(DIM))
        nodes.append(made)
    for made in open_delays:
        later = nodes[nodes.index(made) :]
        driven = add("Plus", later[int(rng.integers(len(later)))], nodes[0])
        network.connect(made, [add("Tanh", driven)])
    out = add("RowStack", *nodes[-3:])
    total = add("SumElements", add("ElementTimes", out, parameter(3 * DIM)))
    try:
        network.validate()
    except CycleError:
        return None
    return network, values, out.name, total.name


def make(built):
    network, values, *_ = built
    net = CntkNet(network)
    for name, value in values.items():
        net.set(name, value)
    return net


def batch(lengths, **rows):
    begin = np.append(0, np.cumsum(lengths))
    layout = packed(np.asarray(lengths))
    streams = {name: Samples(begin, values) for name, values in rows.items()}
    return Minibatch(streams, dict.fromkeys(streams, layout), np.zeros((len(lengths), 2)))


def gradients(net):
    return {name: net.gradient(name) for name in net.parameters()}


SEEDS = st.integers(0, 10**6)
LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@settings(max_examples=12, deadline=None)
@given(SEEDS, LENGTHS)
def test_sequences_one_by_one(seed, lengths):
    rng = np.random.default_rng(seed)
    built = random_network(rng, future=True)
    assume(built is not None)
    out, total = built[2:]
    rows = {name: rng.normal(size=(sum(lengths), DIM)) for name in "xy"}
    net = make(built)
    whole = net.forward(batch(lengths, **rows), [out])[out].data
    value = net.forward_backward(batch(lengths, **rows), total)[total]
    slopes = gradients(net)
    alone, summed, values, begin = make(built), {}, 0.0, 0
    for length in lengths:
        part = {name: r[begin : begin + length] for name, r in rows.items()}
        found = alone.forward(batch([length], **part), [out])[out].data
        np.testing.assert_allclose(found, whole[begin : begin + length], rtol=1e-9, atol=1e-12)
        values += alone.forward_backward(batch([length], **part), total)[total]
        for name, slope in gradients(alone).items():
            summed[name] = summed.get(name, 0) + slope
        begin += length
    np.testing.assert_allclose(value, values, rtol=1e-9, atol=1e-12)
    for name, slope in slopes.items():
        np.testing.assert_allclose(slope, summed[name], rtol=1e-8, atol=1e-10, err_msg=name)


@settings(max_examples=6, deadline=None)
@given(SEEDS, LENGTHS)
def test_step_by_step(seed, lengths):
    rng = np.random.default_rng(seed)
    built = random_network(rng, future=True)
    assume(built is not None)
    rows = {name: rng.normal(size=(sum(lengths), DIM)) for name in "xy"}
    found = []
    for way in ("fast", "steps"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPSCOPE_RECURRENT", way)
            net = make(built)
            value = net.forward_backward(batch(lengths, **rows), built[3])[built[3]]
            found.append((value, gradients(net)))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-10)
    for name, slope in found[0][1].items():
        np.testing.assert_allclose(slope, found[1][1][name], rtol=1e-8, atol=1e-10, err_msg=name)


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.integers(1, 9), st.integers(1, 4))
def test_truncated(seed, length, step):
    rng = np.random.default_rng(seed)
    built = random_network(rng, future=False)
    assume(built is not None)
    out = built[2]
    rows = {name: rng.normal(size=(length, DIM)) for name in "xy"}
    whole = make(built).forward(batch([length], **rows), [out])[out].data
    net = make(built)
    for begin in range(0, length, step):
        end = min(begin + step, length)
        samples = {n: Samples(np.array([0, end - begin]), r[begin:end]) for n, r in rows.items()}
        layout = Layout(1, step, np.zeros(1, int), np.array([-begin]), np.array([length - begin]))
        piece = Minibatch(samples, dict.fromkeys(samples, layout), np.zeros((1, 2)))
        found = net.forward(piece, [out])[out].data
        np.testing.assert_allclose(found, whole[begin:end], rtol=1e-9, atol=1e-12)
