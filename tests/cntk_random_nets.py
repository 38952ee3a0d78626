"""Random recurrent networks of CNTK's nodes, and minibatches for them."""

from __future__ import annotations

import numpy as np

from opscope.cntk.network.network import Network
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.layout import packed
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
