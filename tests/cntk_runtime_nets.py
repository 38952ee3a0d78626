"""Small networks in double precision for tests of the runtime, and minibatches for them."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.cntk.network.network import Network
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.layout import packed
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.run.runtime import CntkNet

LENGTHS = np.array([3, 1, 4, 2])


def minibatch(lengths=LENGTHS, **streams):
    """A minibatch of whole sequences; streams are [samples, dim], or `Samples`."""
    begin = np.append(0, np.cumsum(lengths))
    held = {
        name: rows if isinstance(rows, Samples) else Samples(begin, rows)
        for name, rows in streams.items()
    }
    return Minibatch(held, dict.fromkeys(held, packed(lengths)), np.zeros((len(lengths), 2)))


class Builder:
    """A network in double precision whose parameters are drawn at random."""

    def __init__(self, seed=0):
        self.network = Network("test")
        self.network.precision = "double"
        self.rng = np.random.default_rng(seed)
        self.values = {}

    def add(self, operation, name, *inputs, **attributes):
        return self.network.add(operation, name, inputs, attributes)

    def parameter(self, name, *shape):
        self.values[name] = self.rng.uniform(-0.7, 0.7, shape)
        return self.add("LearnableParameter", name, shape=shape, init="fixedValue")

    def constant(self, name, value):
        return self.add(
            "LearnableParameter",
            name,
            shape=(1,),
            init="fixedValue",
            value=value,
            learningRateMultiplier=0,
        )

    def criterion(self, node):
        """The sum of a node's elements, each with a weight of its own."""
        shape = node.name + ".weights"
        self.network.validate()
        weights = self.parameter(shape, *node.shape)
        return self.add("SumElements", "total", self.add("ElementTimes", "weighted", node, weights))

    def net(self):
        self.network.validate()
        net = CntkNet(self.network)
        for name, value in self.values.items():
            net.set(name, value)
        return net


def check_gradients(net, batch, criterion="total", tolerance=1e-6):
    """The gradient of each parameter against finite differences along a random direction."""
    net.forward_backward(batch, criterion)
    rng, step = np.random.default_rng(7), 1e-5
    for name in net.parameters():
        value, gradient = net.get(name), net.gradient(name)
        direction = rng.normal(size=value.shape)
        sides = []
        for sign in (1, -1):
            net.set(name, value + sign * step * direction)
            sides.append(net.forward(batch, [criterion])[criterion].scalar)
        net.set(name, value)
        slope = (sides[0] - sides[1]) / (2 * step)
        assert slope == pytest.approx((gradient * direction).sum(), rel=tolerance, abs=tolerance)


def data(rng, dim, samples=10):
    return rng.normal(size=(samples, dim))
