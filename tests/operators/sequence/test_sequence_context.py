"""Splicing, shifting and convolution over time against loops over the sequences."""

import numpy as np
import pytest

from opscope.framework.base.errors import ShapeError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, make_op, make_var
from opscope.framework.ir.infer import infer_specs
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.operation import Operator
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest
from sequence_cases import BATCHES, NESTED, RAGGED, parts, rows_in, values, wide_batch

CONTEXTS = [(1, 1, "zero"), (2, 0, "edge"), (-1, 2, "zero"), (3, -1, "edge"), (0, 0, "zero")]


def spliced(x, levels, attrs):
    """Row by row, column block by column block."""
    rows = []
    for part in parts(x, levels):
        for t in range(len(part)):
            blocks = []
            for at in range(t - attrs["left"], t + attrs["right"] + 1):
                inside = 0 <= at < len(part)
                if inside or attrs["padding"] == "edge":
                    blocks.append(part[min(max(at, 0), len(part) - 1)])
                else:
                    blocks.append(np.zeros(x.shape[1]))
            rows.append(np.concatenate(blocks))
    width = x.shape[1] * (attrs["left"] + attrs["right"] + 1)
    return np.array(rows).reshape(len(x), width)


def context(left, right, padding):
    return {"left": left, "right": right, "padding": padding}


class TestSequenceContext(OpTest):
    type = "sequence_context"
    grad = ("x",)

    def cases(self, rng):
        for left, right, padding in CONTEXTS:
            attrs = context(left, right, padding)
            for levels in BATCHES:
                yield Case({"x": values(rng, levels, 3)}, attrs, offsets={"x": levels})
            levels, x = wide_batch(rng)
            yield Case({"x": x}, attrs, offsets={"x": levels})

    def reference(self, inputs, attrs):
        return {"out": spliced(inputs["x"], attrs["offsets"]["x"], attrs)}

    def test_by_hand(self):
        x = np.arange(1.0, 9)[:, None]
        case = Case({"x": x}, context(1, 1, "zero"), offsets={"x": RAGGED})
        wanted = [[0, 1, 2], [1, 2, 3], [2, 3, 0], [0, 4, 5], [4, 5, 6], [5, 6, 7], [6, 7, 0]]
        assert self.output(case)["out"].tolist() == [*wanted, [0, 8, 0]]

    def test_result_carries_the_offsets(self):
        setup = self.setup(Case({"x": np.zeros((7, 1))}, offsets={"x": NESTED}), "float32")
        assert [level.tolist() for level in setup.offsets["out"]] == NESTED

    def test_refuses(self):
        x = np.zeros((8, 2))
        self.refuses("x 'x' carries no sequences", {"x": x})
        offsets = {"x": RAGGED}
        self.refuses("2 dimensions and has 1", {"x": x[:, 0]}, offsets=offsets)
        self.refuses("leave no context", {"x": x}, {"left": -2, "right": 0}, offsets=offsets)


class TestSequenceConv(OpTest):
    type = "sequence_conv"
    grad = ("x", "w", "b")

    def cases(self, rng):
        for left, right, padding in CONTEXTS:
            attrs = context(left, right, padding)
            w = rng.normal(size=(3 * (left + right + 1), 2))
            for levels in BATCHES:
                inputs = {"x": values(rng, levels, 3), "w": w}
                yield Case(inputs | {"b": rng.normal(size=2)}, attrs, offsets={"x": levels})
            yield Case({"x": values(rng, RAGGED, 3), "w": w}, attrs, offsets={"x": RAGGED})

    def reference(self, inputs, attrs):
        context = spliced(inputs["x"], attrs["offsets"]["x"], attrs)
        return {"out": context @ inputs["w"] + inputs.get("b", 0)}

    def test_refuses(self):
        """Its own rule, which is that of the net while it is built."""
        x, w = np.zeros((8, 2)), np.zeros((6, 4))
        attrs = context(1, 1, "zero")
        self.refused("must agree and are 6, 5", {"x": x, "w": w[:5]}, attrs)
        self.refused("must agree and are 4, 3", {"x": x, "w": w, "b": np.zeros(3)}, attrs)
        self.refused("x 'x' carries no sequences", {"x": x, "w": w}, attrs, offsets=None)

    def refused(self, match, inputs, attrs, offsets=RAGGED):
        desc = make_op(self.type, {slot: slot for slot in inputs}, {"out": "out"}, attrs)
        specs = {slot: (array.shape, array.dtype) for slot, array in inputs.items()}
        levels = {} if offsets is None else {"x": tuple(map(np.asarray, offsets))}
        with pytest.raises(ShapeError, match=match):
            infer_specs([Operator(desc)], specs, {}, levels)


class TestSequenceShift(OpTest):
    type = "sequence_shift"
    grad = ("x", "boundary")

    def cases(self, rng):
        for by in (1, -1, 3, 0):
            for levels in BATCHES:
                offsets = {"x": levels}
                x = values(rng, levels, 2)
                yield Case({"x": x}, {"by": by, "fill": 0.5}, offsets=offsets)
                for count in {1, len(levels[-1]) - 1}:
                    boundary = rng.normal(size=(count, 2))
                    yield Case({"x": x, "boundary": boundary}, {"by": by}, offsets=offsets)
            yield Case({"x": values(rng, RAGGED)}, {"by": by}, offsets={"x": RAGGED})
            single = ((0, 4),)
            yield Case({"x": values(rng, single)}, {"by": by}, offsets={"x": single})
            levels, x = wide_batch(rng)
            boundary = rng.normal(size=(40, 30))
            yield Case({"x": x, "boundary": boundary}, {"by": by}, offsets={"x": levels})

    def reference(self, inputs, attrs):
        x, levels, by = inputs["x"], attrs["offsets"]["x"], attrs["by"]
        out = np.full_like(x, attrs["fill"])
        for number, (part, target) in enumerate(
            zip(parts(x, levels), parts(out, levels), strict=True)
        ):
            boundary = inputs.get("boundary")
            if boundary is not None:
                target[...] = boundary[number if len(boundary) > 1 else 0]
            for t in range(len(part)):
                if 0 <= t - by < len(part):
                    target[t] = part[t - by]
        return {"out": out}

    def test_integers(self):
        x = np.arange(8)
        out = self.output(Case({"x": x}, {"fill": -1}, offsets={"x": RAGGED}))["out"]
        assert out.tolist() == [-1, 0, 1, -1, 3, 4, 5, -1]

    def test_refuses(self):
        x, offsets = np.zeros((8, 2)), {"x": RAGGED}
        self.refuses("x 'x' carries no sequences", {"x": x})
        boundary = np.zeros((3, 2))
        self.refuses("agree and are 3, 4", {"x": x, "boundary": boundary}, offsets=offsets)
        self.refuses("one shape", {"x": x, "boundary": np.zeros((4, 3))}, offsets=offsets)
        self.refuses("one dtype", {"x": x, "boundary": np.zeros((4, 2), int)}, offsets=offsets)
        self.refuses("1 dimension", {"x": x, "boundary": np.zeros(())}, offsets=offsets)


def test_context_is_a_column_range_of_shifts():
    """Two ways to the same numbers: splicing, and one shift for each column block."""
    rng = np.random.default_rng(0)
    levels, x = wide_batch(rng)
    net = OpList()
    net.vars.append(make_var("x", (-1, 30), "float64", INPUT, sequence_levels=1))
    net.ops.append(
        make_op("sequence_context", {"x": "x"}, {"out": "spliced"}, {"left": 2, "right": 1})
    )
    for by in (2, 1, 0, -1):
        net.ops.append(make_op("sequence_shift", {"x": "x"}, {"out": f"s{by}"}, {"by": by}))
    net.ops.append(
        make_op("concat", {"x": ["s2", "s1", "s0", "s-1"]}, {"out": "side"}, {"axis": 1})
    )
    scope = Scope()
    scope.var("x").set(x, levels)
    PlainNet(net).run(scope)
    assert np.array_equal(scope.numpy("spliced"), scope.numpy("side"))
    assert scope.get("side").offsets[0].tolist() == levels[0].tolist()
    assert rows_in(levels) == len(x)
