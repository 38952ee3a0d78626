"""Random operators: moments and bounds, repeatability, dropout in both phases."""

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import AttributeTypeError, GradientError
from opscope.framework.base.scope import Scope
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest

FILLS = (
    "uniform_random",
    "gaussian_random",
    "xavier_random",
    "he_random",
    "orthogonal_random",
    "bernoulli_random",
)


class Random(OpTest):
    dtypes = ("float64",)
    attrs = ({},)

    def cases(self, rng):
        for dtype in ("float16", "float32", "float64"):
            for attrs in self.attrs:
                yield Case({}, {"shape": [60, 50], "dtype": np.dtype(dtype), **attrs})
        yield Case({}, {"shape": [0, 3]})
        yield Case({}, {"shape": [], "seed": 3})
        yield Case({"like": np.zeros((4, 2))}, {"shape": [-1, 3]})

    def reference(self, inputs, attrs):
        return {}

    def draw(self, **attrs):
        given = {"shape": [300, 200], "dtype": np.dtype("float64"), **attrs}
        return self.output(Case({}, given))["out"]

    def test_seed_repeats(self):
        a, b = self.draw(seed=7), self.draw(seed=7)
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, self.draw(seed=8))

    def test_refuses(self):
        shape = {"shape": [2]}
        self.refuses("not int64", {}, {**shape, "dtype": np.dtype("int64")})
        self.refuses("below -1", {}, {"shape": [-2]}, AttributeTypeError)
        self.refuses("no `like` that has them", {}, {"shape": [-1]})
        self.refuses("axis 1 open, which like", {"like": np.zeros(3)}, {"shape": [2, -1]})
        self.refuses("below 0", {}, {**shape, "seed": -1}, AttributeTypeError)
        self.refuses("'shape'.*missing", {}, {}, AttributeTypeError)


class TestUniformRandom(Random):
    type = "uniform_random"
    attrs = ({}, {"low": 2.0, "high": 5.0})

    def test_distribution(self):
        out = self.draw(low=2.0, high=5.0)
        assert 2 <= out.min() < 2.01 and 4.99 < out.max() < 5
        assert abs(out.mean() - 3.5) < 0.02 and abs(out.var() - 0.75) < 0.02

    def test_refuses_bounds(self):
        self.refuses("low 2.0 is above high 1.0", {}, {"shape": [2], "low": 2.0, "high": 1.0})
        self.refuses("low nan", {}, {"shape": [2], "low": np.nan})


class TestGaussianRandom(Random):
    type = "gaussian_random"
    attrs = ({"mean": 1.0, "std": 0.5},)

    def test_distribution(self):
        out = self.draw(mean=1.0, std=0.5)
        assert abs(out.mean() - 1) < 0.01 and abs(out.std() - 0.5) < 0.01
        assert abs((out < 1).mean() - 0.5) < 0.01 and (out > 2).any()


class TestXavierRandom(Random):
    type = "xavier_random"
    attrs = ({}, {"uniform": False})

    @pytest.mark.parametrize("uniform", [True, False])
    def test_variance_follows_the_fans(self, uniform):
        assert self.draw(uniform=uniform).var() == pytest.approx(2 / 500, rel=0.03)
        filters = self.draw(uniform=uniform, shape=[40, 30, 5, 5])
        assert filters.var() == pytest.approx(2 / (70 * 25), rel=0.03)
        given = self.draw(uniform=uniform, fan_in=10, fan_out=30, gain=2.0)
        assert given.var() == pytest.approx(4 * 2 / 40, rel=0.03)

    def test_uniform_is_bounded(self):
        assert np.abs(self.draw()).max() <= np.sqrt(6 / 500)


class TestHeRandom(Random):
    type = "he_random"
    attrs = ({}, {"uniform": False})

    @pytest.mark.parametrize("uniform", [True, False])
    def test_variance_follows_fan_in(self, uniform):
        assert self.draw(uniform=uniform).var() == pytest.approx(2 / 300, rel=0.03)
        filters = self.draw(uniform=uniform, shape=[40, 30, 5, 5])
        assert filters.var() == pytest.approx(2 / 750, rel=0.03)
        assert self.draw(uniform=uniform, fan_in=8, slope=1.0).var() == pytest.approx(
            1 / 8, rel=0.03
        )


class TestOrthogonalRandom(Random):
    type = "orthogonal_random"

    def test_rows_or_columns_are_orthonormal(self):
        tall = self.draw(shape=[30, 20], gain=2.0)
        np.testing.assert_allclose(tall.T @ tall, 4 * np.eye(20), atol=1e-12)
        wide = self.draw(shape=[6, 4, 5])
        flat = wide.reshape(6, 20)
        np.testing.assert_allclose(flat @ flat.T, np.eye(6), atol=1e-12)


class TestBernoulliRandom(Random):
    type = "bernoulli_random"

    def test_distribution(self):
        out = self.draw(p=0.3)
        assert set(np.unique(out)) == {0, 1} and abs(out.mean() - 0.3) < 0.01
        assert not self.draw(p=0.0).any() and self.draw(p=1.0).all()

    def test_dtype_does_not_matter(self):
        single = self.draw(p=0.3, seed=4, dtype=np.dtype("float32"))
        np.testing.assert_array_equal(self.draw(p=0.3, seed=4), single)

    def test_refuses_p(self):
        self.refuses("above 1", {}, {"shape": [2], "p": 1.5}, AttributeTypeError)


@pytest.mark.parametrize("op_type", FILLS)
def test_draws_from_the_state_of_the_run(op_type):
    net = PlainNet()
    net.add_op(op_type, {}, {"out": "out"}, {"shape": [4, 3]})

    def draw(context, times=1):
        scope = Scope()
        for _ in range(times):
            net.run(scope, context)
        return scope.numpy("out")

    first = draw(OpContext(seed=1))
    np.testing.assert_array_equal(first, draw(OpContext(seed=1)))
    if op_type == "bernoulli_random":
        return  # twelve bits may well come twice
    assert not np.array_equal(first, draw(OpContext(seed=2)))
    assert not np.array_equal(first, draw(OpContext(seed=1), times=2))


class TestDropout(OpTest):
    type = "dropout"
    grad = ("x",)

    def cases(self, rng):
        x = rng.normal(size=(4, 5))
        yield Case({"x": x}, {"seed": 5})
        yield Case({"x": x}, {"p": 0.0})
        yield Case({"x": x}, {"p": 1.0})
        yield Case({"x": x}, train=False)
        yield Case({"x": rng.normal(size=(3, 4, 2, 5))}, {"channels": True, "seed": 5})

    def reference(self, inputs, attrs):
        return {}

    def test_whole_channels_are_dropped(self):
        x = np.random.default_rng(0).normal(size=(50, 40, 3, 2))
        case = Case({"x": x}, {"p": 0.25, "channels": True})
        setup = self.setup(case, "float64")
        arrays = self.output(setup.case, "float64")
        held = (arrays["out"] != 0).reshape(50, 40, 6)
        assert (held.all(2) == held.any(2)).all()
        assert abs(held.mean() - 0.75) < 0.03
        np.testing.assert_allclose(
            arrays["out"], np.where(held.any(2)[..., None, None], x / 0.75, 0)
        )
        gradient = setup.gradients(arrays, ("x",))["x"]
        wanted = setup.seed("out") * held.reshape(x.shape) / 0.75
        np.testing.assert_allclose(gradient, wanted)

    def test_testing_changes_nothing(self):
        x = np.random.default_rng(0).normal(size=(3, 4))
        for case in (Case({"x": x}, train=False), Case({"x": x}, {"p": 0.0})):
            np.testing.assert_array_equal(self.output(case, "float64")["out"], x)

    @pytest.mark.parametrize("p", [0.25, 0.5, 1.0])
    def test_training_drops_and_scales(self, p):
        x = np.random.default_rng(0).normal(size=(300, 100))
        out = self.output(Case({"x": x}, {"p": p}), "float64")["out"]
        held = out != 0
        assert abs(held.mean() - (1 - p)) < 0.01
        np.testing.assert_allclose(out[held], x[held] / max(1 - p, 1e-9))

    def test_gradient_uses_the_same_mask(self):
        setup = self.setup(Case({"x": np.ones((40, 30))}, {"p": 0.4}), "float64")
        arrays = self.output(setup.case, "float64")
        gradient = setup.gradients(arrays, ("x",))["x"]
        np.testing.assert_allclose(gradient, arrays["out"] * setup.seed("out"))

    def test_refuses(self):
        x = np.zeros(2)
        self.refuses("above 1", {"x": x}, {"p": 1.1}, AttributeTypeError)
        self.refuses("below 0", {"x": x}, {"p": -0.1}, AttributeTypeError)
        self.refuses("floating dtype", {"x": np.zeros(2, int)})
        self.refuses("at least 3 dimensions", {"x": np.zeros((2, 2))}, {"channels": True})


def test_dropout_without_its_mask_runs_but_has_no_gradient():
    net = PlainNet()
    net.add_op("dropout", {"x": ["x"]}, {"out": ["y"]}, {"p": 0.5})
    net.add_op("mean", {"x": ["y"]}, {"out": ["cost"]})
    scope = Scope()
    scope.feed({"x": np.ones((50, 4))})
    net.run(scope, OpContext(train=True, seed=1, live_out=["y"]))
    assert set(np.unique(scope.numpy("y"))) == {0, 2}
    with pytest.raises(GradientError, match=r"op 0 \(dropout\).* no variable in its slot 'mask'"):
        net.add_backward_ops("cost", wrt=["x"])
