"""Statistics that components keep, and self-repair."""

import numpy as np
import pytest

from component_runs import arrays, backprop, propagate
from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, OUTPUT, STATE, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.plain_net import PlainNet
from opscope.kaldi.files.kaldi_io import Reader
from opscope.nnet3.components import Component, ComponentOps, new_component, set_statistic
from opscope.nnet3.language.config import ConfigLine
from opscope.testing import Case, OpTest

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

    def cases(self, rng):
        names = ("mean", "uvar", "sum", "sumsq")
        given = {name: rng.normal(size=3) for name in names}
        yield Case({"x": rng.normal(size=(5, 6)), **given, "count": ONE})

    def reference(self, inputs, attrs):
        count = inputs["x"].size / len(inputs["mean"])
        return {
            "sum_out": inputs["sum"] + count * inputs["mean"],
            "sumsq_out": inputs["sumsq"] + count * inputs["uvar"],
            "count_out": inputs["count"] + count,
        }

    def test_refuses(self):
        four = {name: np.zeros(4) for name in ("mean", "uvar", "sum", "sumsq")}
        given = {"x": np.zeros((5, 6)), **four, "count": ONE}
        self.refuses("6 columns of x are no multiple of 4", given)


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

    def cases(self, rng):
        names = ("values", "slopes")
        totals = {name: rng.normal(size=(5, 3)) for name in names} | {"repaired": np.arange(5.0)}
        given = {"x": rng.normal(size=(4, 15)), "w": rng.normal(size=(3, 3))}
        yield Case(given | totals | {"count": ONE})
        repair = {"repair": np.array([[0, 0.1, 0]] * 5)}
        attrs = {"lower": [0.05, 0.1, 0.2, 0.15, 0.3], "scale": [0.1, 0.2, 0.3, 0.4, 0.5]}
        yield Case(given | totals | {"count": ONE} | repair, attrs)

    def reference(self, inputs, attrs):
        i, f, c, o, before = np.split(inputs["x"], 5, axis=1)
        w = inputs["w"]
        i, f = (1 / (1 + np.exp(-(a + b * before))) for a, b in ((i, w[0]), (f, w[1])))
        g = np.tanh(c)
        cell = f * before + i * g
        o, t = 1 / (1 + np.exp(-(o + w[2] * cell))), np.tanh(cell)
        slopes = [i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o), 1 - t * t]
        out = {
            "values_out": inputs["values"] + np.sum([i, f, g, o, t], axis=1),
            "slopes_out": inputs["slopes"] + np.sum(slopes, axis=1),
            "count_out": inputs["count"] + len(i),
            "repaired_out": inputs["repaired"],
        }
        if "repair" in inputs:
            out["repaired_out"] = out["repaired_out"] + len(i)
            lower, scale = (np.array(attrs[name])[:, None] for name in ("lower", "scale"))
            low = out["slopes_out"] / (1 + out["count_out"]) < lower
            out["repair_out"] = np.where(low, scale, 0.0)
        return out

    def test_refuses(self):
        totals = {"values": np.zeros((5, 3)), "slopes": np.zeros((5, 3)), "repaired": np.zeros(5)}
        given = {"x": np.zeros((4, 15)), "w": np.zeros((3, 3)), "count": ONE}
        self.refuses("lower has 2 numbers", given | totals, {"lower": [0.1, 0.2]})
        self.refuses("wants 15 or 18 columns", given | totals | {"x": np.zeros((4, 16))})


class TestDrawRepair(OpTest):
    """Drawn at random: without rows nothing is repaired; below, the draws."""

    type = "nnet3.draw_repair"

    def cases(self, rng):
        states = {"slopes": rng.normal(size=4), "count": np.zeros(1), "repaired": ONE}
        yield Case(states | {"repair": rng.normal(size=4)}, {"lower": 0.2, "scale": 0.1})

    def reference(self, inputs, attrs):
        zeros = np.zeros_like(inputs["slopes"])
        return {"repair_out": zeros, "repaired_out": inputs["repaired"]}

    def test_draws(self):
        slopes, count = np.array([1.0, 5.0, 1.9, 2.1]), np.array([10.0])
        arrays = {"slopes": slopes, "count": count, "repaired": ONE, "repair": np.zeros(4)}
        attrs = {"lower": 0.2, "scale": 0.1}
        done = 0
        for seed in range(20):
            outputs = ("repair", "repaired")
            repair, repaired = drawn(self.type, arrays, outputs, attrs, seed)
            done += repaired[0] == 4.0
            wanted = [0.2, 0, 0.2, 0] if repaired[0] == 4.0 else np.zeros(4)
            np.testing.assert_allclose(repair, wanted)
        assert 4 <= done <= 16


def drawn(op_type, arrays, outputs, attrs, seed):
    """The outputs of an operator that draws at random, for one seed."""
    net = OpList()
    for name, array in arrays.items():
        net.vars.append(make_var(name, array.shape, array.dtype, INPUT))
    plain = PlainNet(net)
    slots = {f"{name}_out": f"{name}2" for name in outputs}
    plain.add_op(op_type, {name: name for name in arrays}, slots, attrs)
    scope = Scope()
    scope.feed(arrays)
    plain.run(scope, OpContext(seed=seed))
    return [scope.numpy(f"{name}2") for name in outputs]


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
        done = 0
        for seed in range(20):
            outputs = ("grad", "repaired", "processed")
            grad, repaired, processed = drawn(self.type, arrays, outputs, attrs, seed)
            assert processed == 4
            if repaired[0]:
                done += 1
                np.testing.assert_allclose(grad, wanted, atol=1e-7)
            else:
                np.testing.assert_array_equal(grad, 0)
        assert 4 <= done <= 16


def component(text):
    return Component.read_new(Reader(text.encode() + b"\n", binary=False))


def run(ops, feeds, seed=0):
    """All variables of a net after a run; those it writes itself are kept."""
    net = OpList(ops=ops)
    written = {name for op in ops for name in op.output_names()}
    for name, array in feeds.items():
        kind = STATE if name in written else INPUT
        net.vars.append(make_var(name, array.shape, array.dtype, kind))
    for name in written - set(feeds):
        net.vars.append(make_var(name, None, "float32", OUTPUT))
    scope = Scope()
    scope.feed(feeds)
    PlainNet(net).run(scope, OpContext(seed=seed))
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


def both_ways(ops, x, y, *derivs):
    """Forward and backward operators of a component that stores statistics."""
    forward = propagate(ops, x, y, statistics=True)
    return forward + backprop(ops, x, y, *derivs, statistics=True)


def hand_back(c, values):
    for name, value in values.items():
        if name.startswith("p/"):
            set_statistic(c, name.removeprefix("p/"), value)


def test_statistics_of_a_nonlinearity():
    c = component(SIGMOID)
    ops = ComponentOps(c, "p")
    made = both_ways(ops, "x", "y", "g", "dx")
    values = run(made, ops.states() | {"x": X, "g": 2 * X})
    y = values["y"]
    hand_back(c, values)
    assert c.count == 3.0 and isinstance(c.count, float) and c.oderiv_count == 3.0
    np.testing.assert_allclose(c.value_sum, y.sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(c.deriv_sum, (y * (1 - y)).sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(c.oderiv_sumsq, (4 * X**2).sum(axis=0), rtol=1e-6)


def test_output_derivatives_are_counted_before_they_are_overwritten():
    ops = ComponentOps(component(SIGMOID), "p")
    made = both_ways(ops, "x", "y", "g", "g")
    values = run(made, ops.states() | {"x": X, "g": 2 * X})
    np.testing.assert_allclose(values["p/oderiv_sumsq"], (4 * X**2).sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(values["g"], 2 * X * values["y"] * (1 - values["y"]), rtol=1e-5)


def test_statistics_add_up():
    ops = ComponentOps(component(SIGMOID), "p")
    made = propagate(ops, "x", "y", statistics=True)
    once = run(made, ops.states() | {"x": X})
    again = propagate(ops, "x", "z", statistics=True)
    twice = run(made + again, ops.states() | {"x": X})
    np.testing.assert_allclose(twice["p/value_sum"], 2 * once["p/value_sum"])
    assert twice["p/count"] == 6


def test_self_repair_comes_with_its_scale():
    ops = ComponentOps(component(SIGMOID.replace("</", "<SelfRepairScale> 0.0001 </")), "p")
    types = [op.type for op in backprop(ops, "x", "y", "g", "dx", statistics=True)]
    assert types == ["nnet3.column_sums", "sigmoid_grad", "nnet3.self_repair"]
    types = [op.type for op in backprop(ops, "x", "y", "g", None, statistics=True)]
    assert types == ["nnet3.column_sums"], "there is no gradient to change"
    assert [op.type for op in backprop(ops, "x", "y", "g", "dx")] == ["sigmoid_grad"]


def test_batch_norm_statistics_serve_its_test_mode():
    c = component(BATCH_NORM)
    ops = ComponentOps(c, "p")
    values = run(propagate(ops, "x", "y", statistics=True), ops.states() | {"x": X})
    hand_back(c, values)
    np.testing.assert_allclose(c.stats_sum, X.sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(c.stats_sumsq, (X**2).sum(axis=0), rtol=1e-6)
    c.test_mode = True
    ops = ComponentOps(c, "p")
    tested = run(propagate(ops, "x", "y"), arrays(ops) | {"x": X})
    np.testing.assert_allclose(tested["y"], values["y"], rtol=1e-5)


def composite(*parts):
    return component(
        f"<CompositeComponent> <LearningRate> 0.1 <MaxRowsProcess> 0 <NumComponents> {len(parts)}"
        f" {' '.join(parts)} </CompositeComponent>"
    )


def test_statistics_within_a_composite():
    c = composite(SIGMOID, BATCH_NORM)
    ops = ComponentOps(c, "p")
    made = propagate(ops, "x", "y", statistics=True)
    assert not any("statistics" in op.type for op in made), "Kaldi's composites store them later"
    made += backprop(ops, "x", "y", "g", "dx", statistics=True)
    values = run(made, ops.states() | {"x": X, "g": X})
    hand_back(c, values)
    y = 1 / (1 + np.exp(-X))
    np.testing.assert_allclose(c.components[0].value_sum, y.sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(c.components[1].stats_sum, y.sum(axis=0), rtol=1e-6)
    assert c.components[0].oderiv_count == 3


def test_self_repair_within_a_composite():
    """The second sigmoid is repaired before its gradient goes on to the first."""
    stuck = SIGMOID.replace("[ ]", "[ 0 0 ]").replace("<Count> 0", "<Count> 90")
    c = composite(SIGMOID, stuck.replace("</", "<SelfRepairScale> 0.5 </"))
    ops = ComponentOps(c, "p")
    made = both_ways(ops, "x", "y", "g", "dx")
    feeds = ops.states() | {"x": X, "g": np.zeros_like(X)}
    y = 1 / (1 + np.exp(-X))
    z = 1 / (1 + np.exp(-y))
    repaired = 0
    for seed in range(12):
        values = run(made, feeds, seed)
        repaired += values["p/1.num_dims_self_repaired"][0] == 2
        wanted = (1 - 2 * z) * y * (1 - y) if values["dx"].any() else np.zeros_like(X)
        np.testing.assert_allclose(values["dx"], wanted, rtol=1e-4)
    assert 0 < repaired < 12


@pytest.mark.parametrize("name", ["Gru", "OutputGru"])
def test_self_repair_of_a_gru(name):
    parts = {"Gru": 4, "OutputGru": 3}[name]
    c = new_component(f"{name}NonlinearityComponent")
    c.init_from_config(ConfigLine("cell-dim=2 self-repair-scale=0.25"), np.random.default_rng(1))
    c.count, c.value_sum, c.deriv_sum = 50.0, np.zeros(2), np.array([0.0, 50.0])
    ops = ComponentOps(c, "p")
    x = np.random.default_rng(0).normal(size=(3, 2 * parts)).astype(np.float32)
    made = both_ways(ops, "x", "y", "g", "dx")
    feeds = ops.states() | arrays(ops) | {"x": x, "g": np.zeros((3, 4), np.float32)}
    column = slice(2 * parts - 4, 2 * parts - 2)
    repaired = 0
    for seed in range(12):
        values = run(made, feeds, seed)
        assert values["p/count"] == 53 and not values["p/self_repair"].any()
        pushed = values["dx"][:, column]
        repaired += values["p/self_repair_total"][0] == 1
        wanted = -2 * c.self_repair_scale * values["y"][:, :2] * [1, 0]
        np.testing.assert_allclose(pushed, wanted if pushed.any() else 0 * wanted, rtol=1e-5)
    assert 0 < repaired < 12
