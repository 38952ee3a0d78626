"""Operators of nnet3 components that pass values on and change gradients."""

import numpy as np

import opscope.nnet3.components  # noqa: F401  (registers the operators)
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest


class Passing(OpTest):
    """Values pass; what happens to gradients is no derivative, and tested by itself."""

    attrs = {}

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))}, self.attrs)

    def reference(self, inputs, attrs):
        return {"out": inputs["x"]}

    def test_grad_names_what_there_is(self):
        assert self.entry.gradient is not None and not self.grad

    def gradient(self, grad, **attrs):
        """What the operator makes of a gradient."""
        net = OpList()
        for name in ("x", "g"):
            net.vars.append(make_var(name, grad.shape, "float32", INPUT))
        op = PlainNet(net)
        op.add_op(self.type, {"x": "x"}, {"out": "out"}, attrs)
        grads = op.add_backward_ops({"out": "g"}, wrt=["x"])
        scope = Scope()
        scope.feed({"x": np.zeros_like(grad, np.float32), "g": grad.astype(np.float32)})
        op.run(scope)
        return scope.numpy(grads["x"])


class TestScaleGradient(Passing):
    type = "nnet3.scale_gradient"
    attrs = {"scale": 0.25}

    def test_scale(self):
        grad = np.arange(6.0).reshape(2, 3)
        np.testing.assert_allclose(self.gradient(grad, scale=0.25), grad / 4)


class TestClipGradient(Passing):
    type = "nnet3.clip_gradient"
    attrs = {"threshold": 2.0}

    def test_elements(self):
        got = self.gradient(np.array([[-3.0, 1.0, 5.0]]), threshold=2.0)
        np.testing.assert_allclose(got, [[-2, 1, 2]])

    def test_rows(self):
        grad = np.array([[3.0, 4.0], [0.3, 0.4]])
        got = self.gradient(grad, threshold=1.0, norm_based=True)
        np.testing.assert_allclose(got, [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)

    def test_zero_stops(self):
        np.testing.assert_array_equal(self.gradient(np.ones((2, 2)), threshold=0.0), 0)


class TestTruncateGradient(Passing):
    type = "nnet3.truncate_gradient"
    attrs = {
        "clipping_threshold": 2.0,
        "zeroing_threshold": 5.0,
        "boundary": np.array([True, False, True]),
    }

    def test_clips_and_zeroes(self):
        grad = np.array([[6.0, 8.0], [6.0, 8.0], [0.6, 0.8]])
        got = self.gradient(grad, **self.attrs)
        np.testing.assert_allclose(got, [[0, 0], [1.2, 1.6], [0.6, 0.8]], rtol=1e-6)

    def test_small_ones_stay_as_they_are(self):
        grad = np.array([[0.6, 0.8], [-0.1, 1.9], [0.0, 2.0]])
        for last in (1.9, 2.0, 2.1):  # below, at and above the threshold
            grad[2, 1] = last
            got = self.gradient(grad, **self.attrs)
            want = grad * np.array([[1], [1], [min(1, 2 / last)]])
            np.testing.assert_allclose(got, want, rtol=1e-6)

    def test_zero_stops(self):
        got = self.gradient(np.ones((3, 2)), **self.attrs | {"clipping_threshold": 0.0})
        np.testing.assert_array_equal(got, 0)

    def test_nan_stays(self):
        grad = np.array([[0.6, 0.8], [np.nan, 0.1], [0.6, 0.8]])
        got = self.gradient(grad, **self.attrs)
        np.testing.assert_allclose(got[::2], grad[::2])
        assert np.isnan(got[1]).all()

    def test_norms_are_taken_after_the_scale(self):
        grad = np.array([[0.6, 0.8], [6.0, 8.0], [0.6, 0.8]])
        got = self.gradient(grad, **self.attrs | {"scale": 10.0})
        np.testing.assert_allclose(got, [[0, 0], [0.12, 0.16], [0, 0]], atol=1e-6)

    def test_refuses(self):
        self.refuses("length of boundary", {"x": np.zeros((2, 2))}, self.attrs)
        wrong = self.attrs | {"boundary": np.zeros(3)}
        self.refuses("one bool for each row", {"x": np.zeros((3, 2))}, wrong)
