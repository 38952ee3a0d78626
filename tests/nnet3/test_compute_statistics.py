"""Statistics that components keep, and self-repair."""

import numpy as np
import pytest

from op_test import Case, OpTest
from opscope.framework.context import OpContext
from opscope.framework.desc import make_var
from opscope.framework.plain_net import PlainNet
from opscope.framework.scope import Scope
from opscope.nnet3.components import Component
from opscope.nnet3.compute import ComponentOps
from opscope.nnet3.kaldi_io import Reader
from opscope.proto import net_pb2 as pb

ONE = np.array([2.0])


class TestColumnSums(OpTest):
    type = "nnet3.column_sums"
    tolerance = 1e-4

    def cases(self, rng):
        x, total = rng.uniform(-0.9, 0.9, (6, 4)), rng.normal(size=4)
        for of in ("value", "square", "sigmoid_slope", "tanh_slope", "relu_slope"):
            yield Case({"x": x, "total": total, "count": ONE}, {"of": of})
        yield Case({"x": x, "total": total[:2]})

    def reference(self, inputs, attrs):
        x = inputs["x"][:, : len(inputs["total"])]
        functions = {
            "value": x,
            "square": x**2,
            "sigmoid_slope": x * (1 - x),
            "tanh_slope": 1 - x**2,
            "relu_slope": x > 0,
        }
        out = {"total_out": inputs["total"] + functions[attrs["of"]].sum(axis=0)}
        if "count" in inputs:
            out["count_out"] = inputs["count"] + len(x)
        return out

    def test_refuses(self):
        self.refuses("sums of 3 columns", {"x": np.zeros((2, 2)), "total": np.zeros(3)})


class TestBatchNormStatistics(OpTest):
    type = "nnet3.batch_norm_statistics"
    tolerance = 1e-4
    empty = False

    def cases(self, rng):
        names = ("mean", "uvar", "sum", "sumsq")
        given = {name: rng.normal(size=3) for name in names}
        yield Case({"x": rng.normal(size=(5, 6)), **given, "count": ONE})

    def reference(self, inputs, attrs):
        return {
            "sum_out": inputs["sum"] + 10 * inputs["mean"],
            "sumsq_out": inputs["sumsq"] + 10 * inputs["uvar"],
            "count_out": inputs["count"] + 10,
        }


class TestAttentionStatistics(OpTest):
    type = "nnet3.attention_statistics"
    tolerance = 1e-4

    def cases(self, rng):
        weights = rng.dirichlet(np.ones(3), (4, 2))
        totals = {"posterior": rng.normal(size=(2, 3)), "entropy": rng.normal(size=2)}
        yield Case({"weights": weights, **totals, "count": ONE})

    def reference(self, inputs, attrs):
        w = inputs["weights"]
        return {
            "posterior_out": inputs["posterior"] + w.sum(axis=0),
            "entropy_out": inputs["entropy"] - (w * np.log(w)).sum(axis=(0, 2)),
            "count_out": inputs["count"] + len(w),
        }


class TestLstmStatistics(OpTest):
    type = "nnet3.lstm_statistics"
    tolerance = 1e-4
    empty = False

    def cases(self, rng):
        totals = {"values": rng.normal(size=(5, 3)), "slopes": rng.normal(size=(5, 3))}
        given = {"x": rng.normal(size=(4, 15)), "w": rng.normal(size=(3, 3))}
        yield Case(given | totals | {"count": ONE})

    def reference(self, inputs, attrs):
        i, f, c, o, before = np.split(inputs["x"], 5, axis=1)
        w = inputs["w"]
        i, f = (1 / (1 + np.exp(-(a + b * before))) for a, b in ((i, w[0]), (f, w[1])))
        g = np.tanh(c)
        cell = f * before + i * g
        o, t = 1 / (1 + np.exp(-(o + w[2] * cell))), np.tanh(cell)
        slopes = [i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o), 1 - t * t]
        return {
            "values_out": inputs["values"] + np.sum([i, f, g, o, t], axis=1),
            "slopes_out": inputs["slopes"] + np.sum(slopes, axis=1),
            "count_out": inputs["count"] + len(i),
        }


class TestSelfRepair(OpTest):
    """Drawn at random: here the draws that leave the gradient alone; below those that do not."""

    type = "nnet3.self_repair"
    attrs = {"kind": "tanh", "lower": 0.2, "scale": 1e-3, "block": 2}

    def cases(self, rng):
        given = {name: rng.normal(size=(3, 4)) for name in ("grad", "out")}
        counts = {"count": np.zeros(1), "repaired": ONE, "processed": ONE}
        yield Case(given | {"slopes": np.zeros(4)} | counts, self.attrs)

    def reference(self, inputs, attrs):
        return {
            "grad_out": inputs["grad"],
            "repaired_out": inputs["repaired"],
            "processed_out": inputs["processed"] + attrs["block"],
        }

    @pytest.mark.parametrize("kind", ["sigmoid", "tanh", "relu"])
    def test_pushes(self, kind):
        out = np.array([[0.9, -0.2, 0.5, 0.3], [0.1, 0.6, 0.7, 0.2]], np.float32)
        slopes = np.array([0.0, 5.0, 10.0, 0.1])
        pushes = {"sigmoid": 2 - 4 * out, "tanh": -2 * out, "relu": np.full_like(out, 2)}
        push = pushes[kind]
        wanted = 0.01 * push * [1, 0, 0, 1]
        if kind == "relu":
            wanted[:, 2] = -0.02
        attrs = self.attrs | {"kind": kind, "upper": 0.9, "scale": 0.01, "block": 4}
        states = {"count": np.array([10.0]), "repaired": np.zeros(1), "processed": np.zeros(1)}
        arrays = {"grad": np.zeros((2, 4), np.float32), "out": out, "slopes": slopes} | states
        net = pb.NetDesc()
        for name, array in arrays.items():
            net.vars.append(make_var(name, array.shape, array.dtype, pb.VarDesc.INPUT))
        plain = PlainNet(net)
        names = ("grad", "repaired", "processed")
        outputs = {f"{name}_out": f"{name}2" for name in names}
        plain.add_op(self.type, {name: name for name in arrays}, outputs, attrs)
        done = 0
        for seed in range(20):
            scope = Scope()
            scope.feed(arrays)
            plain.run(scope, OpContext(seed=seed))
            grad = scope.numpy("grad2")
            assert scope.numpy("processed2") == 4
            if scope.numpy("repaired2")[0]:
                done += 1
                np.testing.assert_allclose(grad, wanted, atol=1e-7)
            else:
                np.testing.assert_array_equal(grad, 0)
        assert 4 <= done <= 16


def component(text):
    return Component.read_new(Reader(text.encode() + b"\n", binary=False))


def run(ops, feeds):
    """All variables of a net after a run; those it writes itself are kept."""
    net = pb.NetDesc(ops=ops)
    written = {name for op in ops for slot in op.outputs for name in slot.vars}
    for name, array in feeds.items():
        kind = pb.VarDesc.STATE if name in written else pb.VarDesc.INPUT
        net.vars.append(make_var(name, array.shape, array.dtype, kind))
    for name in written - set(feeds):
        net.vars.append(make_var(name, None, "float32", pb.VarDesc.OUTPUT))
    scope = Scope()
    scope.feed(feeds)
    PlainNet(net).run(scope)
    return {name: scope.numpy(name) for name in written}


SIGMOID = (
    "<SigmoidComponent> <Dim> 2 <ValueAvg> [ ] <DerivAvg> [ ] <Count> 0 <NumDimsSelfRepaired> 0"
    " <NumDimsProcessed> 0 </SigmoidComponent>"
)
BATCH_NORM = (
    "<BatchNormComponent> <Dim> 2 <BlockDim> 2 <Epsilon> 0.001 <TargetRms> 1 <TestMode> F"
    " <Count> 0 <StatsMean> [ 0 0 ] <StatsVar> [ 0 0 ] </BatchNormComponent>"
)
X = np.array([[0.5, -1.0], [2.0, 0.0], [1.0, 4.0]], np.float32)
NAMES = {"prefix": "c", "parameters": "p"}


def test_statistics_of_a_nonlinearity():
    c = component(SIGMOID)
    ops = ComponentOps(c)
    made = ops.propagate("x", "y", **NAMES) + ops.store_stats("x", "y", states="s", **NAMES)
    made += ops.backprop("x", "y", "g", "dx", **NAMES)
    made += ops.backprop_stats("x", "y", "g", "dx", states="s", **NAMES)
    values = run(made, ops.states("s") | {"x": X, "g": 2 * X})
    y = values["y"]
    ops.set_states("s", {name: v for name, v in values.items() if name.startswith("s.")})
    assert c.count == 3.0 and isinstance(c.count, float) and c.oderiv_count == 3.0
    np.testing.assert_allclose(c.value_sum, y.sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(c.deriv_sum, (y * (1 - y)).sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(c.oderiv_sumsq, (4 * X**2).sum(axis=0), rtol=1e-6)


def test_statistics_add_up():
    ops = ComponentOps(component(SIGMOID))
    made = ops.propagate("x", "y", **NAMES) + ops.store_stats("x", "y", states="s", **NAMES)
    once = run(made, ops.states("s") | {"x": X})
    twice = run(made + made, ops.states("s") | {"x": X})
    np.testing.assert_allclose(twice["s.value_sum"], 2 * once["s.value_sum"])
    assert twice["s.count"] == 6


def test_self_repair_comes_with_its_scale():
    repaired = SIGMOID.replace("</", "<SelfRepairScale> 0.0001 </")
    ops = ComponentOps(component(repaired))
    made = ops.backprop_stats("x", "y", "g", "dx", states="s", **NAMES)
    assert [op.type for op in made] == ["nnet3.self_repair", "nnet3.column_sums"]
    made = ops.backprop_stats("x", "y", "g", None, states="s", **NAMES)
    assert [op.type for op in made] == ["nnet3.column_sums"], "there is no gradient to change"


def test_batch_norm_statistics_serve_its_test_mode():
    c = component(BATCH_NORM)
    ops = ComponentOps(c)
    made = ops.propagate("x", "y", **NAMES) + ops.store_stats("x", "y", states="s", **NAMES)
    values = run(made, ops.states("s") | {"x": X})
    ops.set_states("s", {name: v for name, v in values.items() if name.startswith("s.")})
    np.testing.assert_allclose(c.stats_sum, X.sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(c.stats_sumsq, (X**2).sum(axis=0), rtol=1e-6)
    c.test_mode = True
    ops = ComponentOps(c)
    tested = run(ops.propagate("x", "y", **NAMES), ops.arrays("p") | {"x": X})
    np.testing.assert_allclose(tested["y"], values["y"], rtol=1e-5)


def test_statistics_within_a_composite():
    text = (
        "<CompositeComponent> <LearningRate> 0.1 <MaxRowsProcess> 0 <NumComponents> 2"
        f" {SIGMOID} {BATCH_NORM} </CompositeComponent>"
    )
    c = component(text)
    ops = ComponentOps(c)
    made = ops.propagate("x", "y", **NAMES) + ops.store_stats("x", "y", states="s", **NAMES)
    values = run(made, ops.states("s") | {"x": X})
    ops.set_states("s", {name: v for name, v in values.items() if name.startswith("s.")})
    y = 1 / (1 + np.exp(-X))
    np.testing.assert_allclose(c.components[0].value_sum, y.sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(c.components[1].stats_sum, y.sum(axis=0), rtol=1e-6)
