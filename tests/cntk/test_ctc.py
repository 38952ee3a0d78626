"""CTC against the sum over all paths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cntk_runtime_nets import LENGTHS, Builder, check_gradients, data, minibatch
from op_test import Case, OpTest
from opscope.cntk.models.v1 import format_model, parse_model
from opscope.cntk.runtime import CntkNet

OFFSETS = (np.array([0, 4, 4, 5, 10]),)
CLASSES, BLANK = 3, 2
# Label and mark of each row; the second sequence has no rows.
LABELS = [(0, 2), (0, 1), (1, 2), (1, 1), (1, 2), (0, 2), (0, 1), (0, 2), (1, 2), (1, 1)]


def marked(labels=LABELS):
    label = np.zeros((len(labels), CLASSES))
    for row, (number, mark) in enumerate(labels):
        label[row, number] = mark
    return label


def collapsed(path):
    return [key for key, _ in itertools.groupby(path) if key != BLANK]


class TestCtc(OpTest):
    type = "cntk.ctc"
    grad = ("x",)
    empty = False
    tolerance = 1e-4

    def cases(self, rng):
        inputs = {"label": marked(), "x": rng.normal(size=(10, CLASSES))}
        yield Case(inputs, {"blank": BLANK}, offsets={"label": OFFSETS, "x": OFFSETS})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        total = 0.0
        for begin, end in itertools.pairwise(OFFSETS[0]):
            wanted = [n for n, mark in LABELS[begin:end] if mark == 2]
            paths = itertools.product(range(CLASSES), repeat=end - begin)
            rows = range(begin, end)
            right = [path for path in paths if collapsed(path) == wanted]
            total -= np.log(sum(np.prod(p[rows, path]) for path in right)) if begin < end else 0
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


def test_node():
    """A network trained on it, and through a model file."""
    b = Builder()
    label, x = b.add("InputValue", "label", shape=CLASSES), b.add("InputValue", "x", shape=4)
    scores = b.add("Times", "scores", b.parameter("W", CLASSES, 4), x)
    graph = b.add("LabelsToGraph", "graph", label)
    b.add("ForwardBackward", "total", graph, scores, blankTokenId=BLANK)
    net, rng = b.net(), np.random.default_rng(3)
    labels = np.eye(CLASSES)[rng.integers(0, 2, LENGTHS.sum())]
    batch = minibatch(label=labels, x=data(rng, 4))
    check_gradients(net, batch)
    net.store()
    same = parse_model(format_model(b.network), "ctc", "double")
    same.validate()
    wanted = net.forward(batch, ["total"])["total"].scalar
    assert CntkNet(same).forward(batch, ["total"])["total"].scalar == pytest.approx(wanted)
