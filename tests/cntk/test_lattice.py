"""The sequence criterion beside a sum over all paths of small lattices."""

import numpy as np
import pytest

import opscope.cntk.operators  # noqa: F401  registers them
from op_test import Case, OpTest
from opscope.cntk.config import parse_config
from opscope.cntk.lattice import PARTS, Lattice, feed_lattices, levels
from opscope.cntk.network.network import Network
from opscope.cntk.readers.data import Samples
from opscope.cntk.readers.layout import packed
from opscope.cntk.readers.pack import Minibatch
from opscope.cntk.runtime import CntkNet
from opscope.cntk.sgd.options import SgdOptions
from opscope.cntk.sgd.schedules import Schedules
from opscope.framework.errors import RunError, ShapeError
from opscope.framework.scope import Scope

STATES = 5
TIMES = [[0, 2, 3, 3, 6], [0, 1, 1, 3, 3]]
EDGES = [
    [[0, 1], [0, 2], [1, 2], [1, 3], [2, 4], [3, 4], [0, 4]],
    [[0, 1], [0, 2], [1, 3], [2, 3], [3, 4]],
]


def lattices(rng):
    found = []
    for times, edges in zip(TIMES, EDGES, strict=True):
        lengths = [times[end] - times[begin] for begin, end in edges]
        states = rng.integers(STATES, size=sum(lengths))
        found.append(Lattice(times, edges, rng.normal(size=len(edges)), states))
    return found


def arrays(held):
    scope = Scope()
    feed_lattices(scope, "n", held)
    slots = ("nodes", "firsts", "edges", "lm", "states")
    return {slot: scope.numpy(f"n@LATTICE@{part}") for slot, part in zip(slots, PARTS, strict=True)}


def paths(edges, last):
    """All paths from node 0 to the last one, as numbers of edges."""
    waiting = [(0, [])]
    while waiting:
        node, path = waiting.pop()
        if node == last:
            yield path
        waiting += [(end, [*path, j]) for j, (begin, end) in enumerate(edges) if begin == node]


class TestLatticeCriterion(OpTest):
    type = "cntk.lattice_criterion"
    empty = False

    def cases(self, rng):
        held = lattices(rng)
        rows = sum(lattice.frames for lattice in held)
        for attrs in (
            {"acoustic": 2.0, "language": 1.5, "penalty": -0.3},
            {"acoustic": 1.0, "boost": 0.7, "smoothing": 0.6},
            {"acoustic": 3.0, "drop": 0.2, "smoothing": 1.0},
        ):
            labels = rng.integers(STATES, size=rows)
            inputs = {"label": np.eye(STATES)[labels], "x": rng.normal(size=(rows, STATES))}
            inputs["likelihoods"] = rng.normal(size=(rows, STATES))
            yield Case({**inputs, **arrays(held)}, attrs)

    def reference(self, inputs, attrs):
        label, scores = inputs["label"].argmax(1), inputs["likelihoods"]
        gamma, total, row, frame, edge = np.zeros_like(scores), 0.0, 0, 0, 0
        for times, edges in zip(TIMES, EDGES, strict=True):
            frames, each = [], []
            for j, (begin, end) in enumerate(edges):
                states = inputs["states"][frame : frame + times[end] - times[begin]]
                frame += len(states)
                rows = row + np.arange(times[begin], times[end])
                lm = attrs["language"] * inputs["lm"][edge + j] + attrs["penalty"]
                score = (lm + scores[rows, states].sum()) / attrs["acoustic"]
                each.append(score - attrs["boost"] * (states == label[rows]).sum())
                frames.append((rows, states))
            ways = list(paths(edges, len(times) - 1))
            logs = np.array([sum(each[j] for j in way) for way in ways])
            whole = np.logaddexp.reduce(logs)
            for way, share in zip(ways, np.exp(logs - whole), strict=True):
                for j in way:
                    gamma[frames[j]] += share
            rows = np.arange(row, row + times[-1])
            total += scores[rows, label[rows]].sum() / attrs["acoustic"] - whole
            row, edge = row + times[-1], edge + len(edges)
        soft = np.exp(inputs["x"] - np.logaddexp.reduce(inputs["x"], 1, keepdims=True))
        slope = attrs["smoothing"] * gamma + (1 - attrs["smoothing"]) * soft - inputs["label"]
        slope[gamma[np.arange(len(label)), label] < attrs["drop"]] = 0
        return {"out": np.array([total]), "slope": slope}

    def test_grad_names_what_there_is(self):
        case = next(self.cases(np.random.default_rng(0)))
        setup = self.setup(case, "float64")
        slope = np.random.default_rng(1).normal(size=case.inputs["x"].shape)
        found = setup.gradients({**setup.arrays, "slope": slope}, ("x",))
        assert np.allclose(found["x"], slope * setup.seed("out"))

    def test_refuses(self):
        case = next(self.cases(np.random.default_rng(0)))
        for change, match in (
            ({"states": np.full_like(case.inputs["states"], 5)}, r"not in 0 \.\. 4"),
            ({"edges": case.inputs["edges"][:, [0, 0]]}, "9 frames|frames, the minibatch"),
        ):
            with pytest.raises(RunError, match=match):
                self.output(Case({**case.inputs, **change}))


def test_no_path():
    held = Lattice([0, 2, 4], [[0, 1]], [0.0], [1, 1])
    inputs = {slot: np.ones((4, 2)) for slot in ("label", "x", "likelihoods")}
    with pytest.raises(RunError, match="no path leads through the lattice of utterance 0"):
        TestLatticeCriterion().output(Case({**inputs, **arrays([held])}))


def test_rounds_of_a_long_chain():
    edges = np.column_stack([np.arange(500), np.arange(1, 501)])[::-1]
    assert [part.tolist() for part in levels(edges, 501)] == [[n] for n in range(499, -1, -1)]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"times": [1, 2]}, "begin with 0"),
        ({"times": [0, 2, 1]}, "never fall"),
        ({"edges": [[0, 3]]}, "leaves its 3 nodes"),
        ({"edges": [[1, 1]]}, "later node"),
        ({"scores": [0.0, 1.0]}, "do not fit"),
        ({"states": [1]}, "have 2 frames"),
    ],
)
def test_bad_lattices(change, match):
    good = {"times": [0, 2, 4], "edges": [[0, 1]], "scores": [0.0], "states": [1, 1]}
    Lattice(**good)
    with pytest.raises(ShapeError, match=match):
        Lattice(**{**good, **change})


def sequence_net(rng):
    """A network with the criterion, two lattices and their minibatch."""
    network = Network("test")
    network.precision = "double"
    x = network.add("InputValue", "x", attributes={"shape": 3})
    label = network.add("InputValue", "label", attributes={"shape": STATES})
    given = {"shape": (STATES, 3), "init": "uniform", "initValueScale": 20}
    weights = network.add("LearnableParameter", "W", attributes=given)
    outputs = network.add("Times", "outputs", [weights, x])
    network.add("SequenceWithSoftmax", "criterion", [label, outputs, outputs])
    network.validate()
    held = lattices(rng)
    lengths = np.array([lattice.frames for lattice in held])
    begin, rows = np.append(0, np.cumsum(lengths)), int(lengths.sum())
    streams = {
        "x": rng.normal(size=(rows, 3)),
        "label": np.eye(STATES)[rng.integers(STATES, size=rows)],
    }
    samples = {name: Samples(begin, values) for name, values in streams.items()}
    batch = Minibatch(samples, dict.fromkeys(samples, packed(lengths)), np.zeros((2, 2)))
    net = CntkNet(network)
    feed_lattices(net.scope, "criterion", held)
    return net, batch


def test_in_a_network():
    net, batch = sequence_net(np.random.default_rng(2))
    value = net.forward_backward(batch, "criterion")["criterion"]
    net.set("W", net.get("W") - 1e-3 * net.gradient("W"))
    after = net.forward(batch, ["criterion"])["criterion"].scalar
    assert np.isfinite(value) and after > value


def test_options_of_sgd():
    net, batch = sequence_net(np.random.default_rng(2))
    before = net.forward(batch, ["criterion"])["criterion"].scalar
    text = "maxEpochs=1\nlearningRatesPerSample=0.1\nseqGammarAMF=2\nhSmoothingWeight=0.5\n"
    options = SgdOptions.of(parse_config(text))
    node = net.network.find("criterion")
    Schedules(net, node, options, print)
    assert (node.attributes["seqGammarAMF"], node.attributes["hSmoothingWeight"]) == (2, 0.5)
    assert node.attributes["seqGammarLMF"] == 14
    after = net.forward(batch, ["criterion"])["criterion"].scalar
    assert np.isfinite(after) and after != before
