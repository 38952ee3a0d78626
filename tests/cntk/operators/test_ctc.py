"""CTC against the sum over all paths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cntk_runtime_nets import LENGTHS, Builder, check_gradients, data, minibatch
from opscope.cntk.models.v1 import format_model, parse_model
from opscope.cntk.run.runtime import CntkNet
from opscope.framework.base.scope import Scope
from opscope.framework.base.sequence import Sequences
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest

OFFSETS = (np.array([0, 4, 4, 5, 10]),)
CLASSES, BLANK = 3, 2
# Label and mark of each row; the second sequence has no rows.
LABELS = [(0, 2), (0, 1), (1, 2), (1, 1), (1, 2), (0, 2), (0, 1), (0, 2), (1, 2), (1, 1)]


def marked(labels=LABELS):
    label = np.zeros((len(labels), CLASSES))
    for row, (number, mark) in enumerate(labels):
        label[row, number] = mark
    return label


def runs(path):
    """The labels of a path, and the last row of each."""
    found, row = [], -1
    for label, group in itertools.groupby(path):
        row += len(list(group))
        if label != BLANK:
            found.append((label, row))
    return found


def brute_force(x, labels, delay=-1):
    """Criterion and gradient of one sequence, from all paths through its rows."""
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    starts = [row for row, (_, mark) in enumerate(labels) if mark == 2]
    latest = [start + delay for start in [*starts[1:], len(x)]]
    wanted = [labels[start][0] for start in starts]
    chance, occupied = 0.0, np.zeros_like(x)
    for path in itertools.product(range(CLASSES), repeat=len(x)):
        given = runs(path)
        in_time = delay < 0 or all(row <= t for (_, row), t in zip(given, latest, strict=False))
        if [label for label, _ in given] == wanted and in_time:
            weight = np.prod(p[np.arange(len(x)), path])
            chance += weight
            occupied[np.arange(len(x)), path] += weight
    return -np.log(chance), p - occupied / chance


class TestCtc(OpTest):
    type = "cntk.ctc"
    grad = ("x",)
    tolerance = 1e-4

    def cases(self, rng):
        inputs = {"label": marked(), "x": rng.normal(size=(10, CLASSES))}
        yield Case(inputs, {"blank": BLANK}, offsets={"label": OFFSETS, "x": OFFSETS})

    def reference(self, inputs, attrs):
        total = sum(
            brute_force(inputs["x"][begin:end], LABELS[begin:end])[0]
            for begin, end in itertools.pairwise(OFFSETS[0])
            if begin < end
        )
        return {"out": np.array([total])}

    def value(self, labels, x, **attrs):
        offsets = (np.array([0, len(x)]),)
        case = Case(
            {"label": marked(labels), "x": x}, {"blank": BLANK, **attrs},
            offsets={"label": offsets, "x": offsets},
        )  # fmt: skip
        return self.output(case, "float64")["out"][0]

    def test_labels_without_marks_begin_where_they_change(self):
        x = np.random.default_rng(1).normal(size=(5, CLASSES))
        plain = [(0, 1), (0, 1), (1, 1), (1, 1), (0, 1)]
        marks = [(0, 2), (0, 1), (1, 2), (1, 1), (0, 2)]
        assert self.value(plain, x) == pytest.approx(self.value(marks, x))

    def test_late_labels_do_not_count(self):
        x = np.random.default_rng(2).normal(size=(5, CLASSES))
        labels = [(0, 2), (1, 2), (1, 1), (1, 1), (1, 1)]
        values = [self.value(labels, x, delay=delay) for delay in (0, 1, -1)]
        assert values[0] > values[1] > values[2]

    def test_labels_that_do_not_fit_add_nothing(self):
        """Two equal labels need a blank between them."""
        x = np.random.default_rng(3).normal(size=(2, CLASSES))
        assert self.value([(0, 2), (0, 2)], x) == 0
        assert not gradient([(0, 2), (0, 2)], x).any()


def gradient(labels, x, **attrs):
    net, scope = PlainNet(), Scope()
    net.add_op("cntk.ctc", {"label": "label", "x": "x"}, {"out": "out", "slope": "slope"},
               {"blank": BLANK, **attrs})  # fmt: skip
    found = net.add_backward_ops("out", ["x"])["x"]
    offsets = (np.array([0, len(x)]),)
    scope.feed({"label": Sequences(marked(labels), offsets), "x": Sequences(x, offsets)})
    net.run(scope)
    return scope.numpy(found)


@pytest.mark.parametrize("delay", [-1, 0, 1, 3])
@pytest.mark.parametrize("starts", [(0,), (1, 3), (0, 2, 4), (0, 1, 2, 5), ()])
def test_all_paths(delay, starts):
    """Criterion and gradient are those of the sum over all paths that are in time."""
    rng = np.random.default_rng(1 + len(starts) + delay)
    x = rng.normal(size=(7, CLASSES))
    labels = [(BLANK, 1)] * 7
    for row in starts:
        labels[row] = (int(rng.integers(0, BLANK)), 2)
    value, slope = brute_force(x, labels, delay)
    assert TestCtc().value(labels, x, delay=delay) == pytest.approx(value)
    np.testing.assert_allclose(gradient(labels, x, delay=delay), slope, atol=1e-12)


@pytest.mark.parametrize("blank", [2, 2**64 - 1])
def test_node(blank):
    """A network trained on it, and through a model file."""
    b = Builder()
    label, x = b.add("InputValue", "label", shape=CLASSES), b.add("InputValue", "x", shape=4)
    scores = b.add("Times", "scores", b.parameter("W", CLASSES, 4), x)
    graph = b.add("LabelsToGraph", "graph", label)
    b.add("ForwardBackward", "total", graph, scores, blankTokenId=blank)
    net, rng = b.net(), np.random.default_rng(3)
    labels = np.eye(CLASSES)[rng.integers(0, 2, LENGTHS.sum())]
    batch = minibatch(label=labels, x=data(rng, 4))
    check_gradients(net, batch)
    net.store()
    same = parse_model(format_model(b.network), "ctc", "double")
    same.validate()
    wanted = net.forward(batch, ["total"])["total"].scalar
    assert CntkNet(same).forward(batch, ["total"])["total"].scalar == pytest.approx(wanted)
