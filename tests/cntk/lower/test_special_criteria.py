"""Networks with the criteria of language models, sequences, rankings and users: gradients of their
parameters against differences, and values where a few lines give them."""

import numpy as np
import pytest

from opscope.cntk.network.network import Network
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.layout import packed
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.run.runtime import CntkNet

LENGTHS = np.array([3, 1, 4])
ROWS = int(LENGTHS.sum())


def minibatch(**streams):
    begin, layout = np.append(0, np.cumsum(LENGTHS)), packed(LENGTHS)
    held = {name: Samples(begin, rows) for name, rows in streams.items()}
    return Minibatch(held, dict.fromkeys(held, layout), np.zeros((len(LENGTHS), 2)))


class Net:
    """A network in double precision: a layer W x, and what a test adds."""

    def __init__(self, width=4, inputs=3):
        self.network, self.rng = Network("test"), np.random.default_rng(5)
        self.network.precision = "double"
        x = self.add("InputValue", "x", shape=inputs)
        self.layer = self.add("Times", "layer", self.parameter("W", width, inputs), x)
        self.streams = {"x": self.rng.normal(size=(ROWS, inputs))}

    def add(self, operation, name, *inputs, **attributes):
        return self.network.add(operation, name, inputs, attributes)

    def parameter(self, name, *shape):
        return self.add("LearnableParameter", name, shape=shape, init="uniform", initValueScale=20)

    def data(self, name, rows):
        self.streams[name] = np.asarray(rows, float).reshape(ROWS, -1)
        return self.add("InputValue", name, shape=self.streams[name].shape[1])

    def run(self):
        self.network.validate()
        net, batch = CntkNet(self.network), minibatch(**self.streams)
        return net, batch

    def check(self, node, tolerance=1e-6):
        """Gradients of all parameters; gives the criterion."""
        net, batch = self.run()
        value = net.forward_backward(batch, node)[node.name]
        for name in net.parameters():
            held, gradient = net.get(name), net.gradient(name)
            direction = self.rng.normal(size=held.shape)
            sides = []
            for step in (1e-5, -1e-5):
                net.set(name, held + step * direction)
                sides.append(net.forward(batch, [node])[node.name].scalar)
            net.set(name, held)
            slope = (sides[0] - sides[1]) / 2e-5
            assert slope == pytest.approx((gradient * direction).sum(), rel=tolerance, abs=1e-7)
        return value


def labels(rng, count):
    return np.eye(count)[rng.integers(count, size=ROWS)]


def test_class_based_softmax():
    b = Net()
    word = b.rng.integers(6, size=ROWS)
    class_ = np.array([0, 0, 1, 1, 1, 2])[word]
    ranges = np.array([[0, 2], [2, 5], [5, 6]])[class_]
    label = b.data("label", np.column_stack([word, class_, ranges]))
    words, classes = b.parameter("E", 4, 6), b.parameter("C", 3, 4)
    scores = b.add("Times", "classes", classes, b.layer)
    node = b.add("ClassBasedCrossEntropyWithSoftmax", "ce", label, b.layer, words, scores)
    value = b.check(node)
    net, _ = b.run()
    h = b.streams["x"] @ net.get("W").T
    total = 0.0
    for row in range(ROWS):
        of_class = net.get("C") @ h[row]
        of_word = (net.get("E").T @ h[row])[slice(*ranges[row])]
        total += np.logaddexp.reduce(of_class) - of_class[class_[row]]
        total += np.logaddexp.reduce(of_word) - of_word[word[row] - ranges[row, 0]]
    assert value == pytest.approx(total)


def test_noise_contrastive_estimation():
    b = Net()
    samples = np.column_stack(
        [b.rng.integers(6, size=(ROWS, 3)), b.rng.uniform(1, 2, size=(ROWS, 3))]
    )[:, [0, 3, 1, 4, 2, 5]]
    samples[:, 1] *= -1
    label = b.data("label", samples)
    inputs = label, b.layer, b.parameter("E", 4, 6), b.parameter("B", 1, 6)
    b.check(b.add("NCEBasedCrossEntropyWithSoftmax", "nce", *inputs))
    word = b.data("word", samples[:, 0])
    score = b.add("NCEBasedCrossEntropyWithSoftmax", "score", word, *inputs[1:], evalMode=0)
    net, batch = b.run()
    scores = b.streams["x"] @ net.get("W").T @ net.get("E") + net.get("B")
    wanted = np.logaddexp.reduce(scores, 1) - scores[np.arange(ROWS), samples[:, 0].astype(int)]
    assert net.forward(batch, [score])["score"].scalar == pytest.approx(wanted.sum())


def test_crf_and_its_decoder():
    b = Net()
    label, pairs = b.data("label", labels(b.rng, 4)), b.parameter("A", 4, 4)
    node = b.add("CRF", "crf", label, b.layer, pairs)
    decoder = b.add("SequenceDecoderNode", "best", label, b.layer, pairs)
    net, batch = b.run()
    found = net.forward(batch, ["crf", "best"])
    assert found["best"].data.shape == (ROWS, 4) and (found["best"].data.sum(1) == 1).all()
    assert decoder.shape == (4,)
    # As in CNTK the value leaves the first steps out, and the gradient does not.
    net.forward_backward(batch, node)
    firsts = np.cumsum(LENGTHS) - LENGTHS
    first = b.streams["label"][firsts].argmax(1)
    for name in ("W", "A"):
        held, gradient = net.get(name), net.gradient(name)
        direction, sides = b.rng.normal(size=held.shape), []
        for step in (1e-5, -1e-5):
            net.set(name, held + step * direction)
            value = net.forward(batch, ["crf"])["crf"].scalar
            sides.append(value - net.get("A")[first, first].sum())
        net.set(name, held)
        assert (sides[0] - sides[1]) / 2e-5 == pytest.approx((gradient * direction).sum())


def test_pairs_are_of_a_label_after_another():
    """CNTK's matrix holds in row k and column j the score of label k after label j."""
    b = Net(width=2)
    label = b.data("label", [[1, 0]] * ROWS)
    b.add("CRF", "crf", label, b.layer, b.parameter("A", 2, 2))
    net, batch = b.run()
    net.set("W", np.zeros((2, 3)))
    net.set("A", [[0, 0], [-50, 0]])  # label 1 hardly ever follows label 0
    assert net.forward(batch, ["crf"])["crf"].scalar == pytest.approx(0, abs=1e-9)


def test_edit_distance():
    b = Net()
    x, y = b.data("a", labels(b.rng, 3)), b.data("b", labels(b.rng, 3))
    node = b.add("EditDistanceError", "err", x, y, subPen=1.0, delPen=1.0, insPen=1.0)
    net, batch = b.run()
    worst = (b.streams["a"] != b.streams["b"]).any(1).sum()
    assert 0 < net.forward(batch, [node])["err"].scalar <= worst


def test_rankings():
    b = Net(width=1)
    gain, query = b.data("gain", [9, 4, 0, 5, 3, 2, 2, 0]), b.data("query", [1] * 3 + [2] * 5)
    node = b.add("LambdaRank", "rank", gain, b.layer, query)
    b.add("NDCG1Eval", "first", gain, b.layer, query)
    net, batch = b.run()
    rate = 0.02
    before = net.forward(batch, ["rank", "first"])
    for _ in range(300):
        net.forward_backward(batch, node)
        net.set("W", net.get("W") - rate * net.gradient("W"))
    after = net.forward(batch, ["rank", "first"])
    assert after["rank"].scalar < 0.7 * before["rank"].scalar
    assert after["first"].scalar >= before["first"].scalar


def test_dummy_criterion():
    b = Net()
    value = b.data("value", b.rng.normal(size=ROWS))
    slope = b.data("slope", b.rng.normal(size=(ROWS, 4)))
    node = b.add("DummyCriterion", "given", value, slope, b.layer)
    net, batch = b.run()
    assert net.forward_backward(batch, node)["given"] == pytest.approx(b.streams["value"].sum())
    wanted = b.streams["slope"].T @ b.streams["x"]
    np.testing.assert_allclose(net.gradient("W"), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("per_sample", [False, True])
def test_mixture(per_sample):
    b = Net(width=2)
    sizes = {"prior": 3, "means": 6, "deviations": 3}
    if per_sample:
        parts = [b.add("Times", n, b.parameter(f"{n}.W", d, 2), b.layer) for n, d in sizes.items()]
    else:
        parts = [b.parameter(name, dim, 1) for name, dim in sizes.items()]
    node = b.add("GMMLogLikelihood", "logs", *parts, b.layer)
    total = b.check(b.add("SumElements", "total", node))
    if per_sample:
        return
    net, _ = b.run()
    prior, means, deviations = (net.get(name)[:, 0] for name in sizes)
    x = b.streams["x"] @ net.get("W").T
    distance = ((x[:, None] - means.reshape(3, 2)) ** 2).sum(2) / np.exp(2 * deviations)
    logs = prior - np.logaddexp.reduce(prior) - distance / 2
    logs -= 3 * deviations + 1.5 * np.log(2 * np.pi)  # three, the components
    assert total == pytest.approx(np.logaddexp.reduce(logs, 1).sum())
