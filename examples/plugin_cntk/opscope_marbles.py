"""A reader, a writer, a node, a learner and an action for CNTK's configs."""

import numpy as np

from opscope.cntk.actions.common import build_or_load
from opscope.cntk.lower import lowers
from opscope.cntk.network.nodes import rules
from opscope.cntk.network.nodes.kind import standard
from opscope.cntk.operators.updates.learning import Learner
from opscope.cntk.readers.base.data import Samples, Stream
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.readers.base.reader import DataReader
from opscope.cntk.readers.base.writer import DataWriter
from opscope.framework.base.files.atomic import atomic_file
from opscope.framework.ir.schema import AttrSpec


class MarbleReader(DataReader):
    """Marbles thrown at a circle: where each lies, and whether it lies inside.

    reader = [ readerType = MarbleReader ; marbles = 400 ; seed = 1 ]
    """

    def __init__(self, config):
        self.streams = [Stream("features", 2), Stream("labels", 2, sparse=True)]
        self._count = config.size("marbles", 400)
        self._seed = config.int("seed", 1)

    def start_minibatch_loop(self, size, epoch, epoch_size=None):
        random = np.random.default_rng((self._seed, epoch))
        self._marbles = random.normal(size=(epoch_size or self._count, 2)).astype(np.float32)
        self._next = 0
        self._size = size

    def get_minibatch(self):
        marbles = self._marbles[self._next : self._next + self._size]
        self._next += len(marbles)
        if not len(marbles):
            return None
        begin = np.arange(len(marbles) + 1)
        outside = (np.hypot(*marbles.T) > 1).astype(np.int64)
        ones = np.ones(len(marbles), np.float32)
        labels = Samples(begin, ones, indices=outside, first=begin)
        return Minibatch({"features": Samples(begin, marbles), "labels": labels})


class CsvWriter(DataWriter):
    """The values of a node as rows of numbers.

    writer = [ writerType = CsvWriter ; file = "out.csv" ; node = z ]
    """

    def __init__(self, config):
        self.files = [config.string("file")]
        self.names = [config.string("node")]
        self._rows = []

    def save_data(self, values):
        self._rows.append(values[self.names[0]].values)

    def close(self):
        with atomic_file(self.files[0]) as file:
            np.savetxt(file, np.concatenate(self._rows), "%.6g", delimiter=",")

    def discard(self):
        self._rows = []


# Swish: x sigmoid(x), for each element. NDL and BrainScript call it `Swish (x)`.
standard("Swish", 1, rules.unary)


@lowers("Swish")
def lower_swish(e, node):
    x = e.value(node.inputs[0])
    return e.op("mul", {"x": x, "y": e.op("sigmoid", {"x": x})})


def bind_lion(k, shape):
    xp = k.xp
    beta = k.attrs["beta"]
    factor = k.attrs["rate_factor"]

    def update(control, param, gradient, states, count):
        (rate, momentum, _columns), (average,) = control, states
        param -= rate * factor * xp.sign(momentum * average + (1 - momentum) * gradient)
        average *= beta
        average += (1 - beta) * gradient

    return update


# SGD = [ gradUpdateType = Lion ; Lion = [ beta = 0.98 ] ]
LION = Learner(
    "marbles.lion",
    "Lion (Chen et al. 2023): steps by the sign of an average of gradients.",
    states=("average",),
    bind=bind_lion,
    attrs=(AttrSpec("beta", "float", "share of the old average in the new one", 0.99, 0.0, 1.0),),
)


def count_parameters(run, section):
    """The action `countParameters`: of the model `modelPath`."""
    network = build_or_load(run, section)
    parameters = (node for node in network.nodes.values() if node.is_parameter)
    count = sum(node.value.size for node in parameters if node.value is not None)
    run.say(f"{count} parameters\n")
