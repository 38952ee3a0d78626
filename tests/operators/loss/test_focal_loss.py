"""Focal losses, and the weights of samples by their labels."""

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError, RunError
from opscope.testing import Case, OpTest


class TestSigmoidFocalLoss(OpTest):
    type = "sigmoid_focal_loss"
    grad = ("x",)

    def cases(self, rng):
        for attrs in (
            {},
            {"alpha": -1.0},
            {"alpha": 0.6, "gamma": 0.0},
            {"gamma": 1.0},
            {"gamma": 0.5},
        ):
            for shape in ((3, 4), (300,), ()):
                label = rng.integers(0, 2, shape).astype(float)
                yield Case({"x": 2 * rng.normal(size=shape), "label": label}, attrs)
        yield Case({"x": rng.normal(size=(4, 3)), "label": rng.uniform(size=(4, 3))})

    def reference(self, inputs, attrs):
        """torchvision.ops.sigmoid_focal_loss."""
        x, label, alpha = inputs["x"], inputs["label"], attrs["alpha"]
        p = 1 / (1 + np.exp(-x))
        cross = np.logaddexp(0, x) - x * label
        right = p * label + (1 - p) * (1 - label)
        out = cross * (1 - right) ** attrs["gamma"]
        if alpha >= 0:
            out = (alpha * label + (1 - alpha) * (1 - label)) * out
        return {"out": out}

    @pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
    def test_is_stable(self, gamma):
        x, label = np.array([80.0, -80.0, 80.0, -80.0]), np.array([1.0, 0.0, 0.0, 1.0])
        setup = self.setup(
            Case({"x": x, "label": label}, {"gamma": gamma, "alpha": -1.0}), "float32"
        )
        out = self.output(setup.case)["out"]
        np.testing.assert_allclose(out, [0, 0, 80, 80], atol=1e-30)
        (gradient,) = setup.gradients(
            {"x": x.astype("f4"), "label": label.astype("f4")}, ("x",)
        ).values()
        expected = np.array([0, 0, 1, -1]) * setup.seed("out")
        np.testing.assert_allclose(gradient, expected, atol=1e-30)


class TestFocalModulation(OpTest):
    type = "focal_modulation"
    grad = ("x",)

    def cases(self, rng):
        for attrs in ({}, {"gamma": 0.0}, {"gamma": 0.5}, {"gamma": 1.0}, {"gamma": 3.5}):
            yield Case({"x": rng.uniform(0.1, 4, size=(3, 5))}, attrs)

    def reference(self, inputs, attrs):
        x = inputs["x"]
        return {"out": (1 - np.exp(-x)) ** attrs["gamma"] * x}

    def test_of_a_certain_sample(self):
        for gamma in (0.0, 0.5, 2.0):
            setup = self.setup(Case({"x": np.zeros(1)}, {"gamma": gamma}), "float64")
            (gradient,) = setup.gradients({"x": np.zeros(1)}, ("x",)).values()
            assert gradient == pytest.approx(setup.seed("out") if gamma == 0 else 0, abs=1e-6)

    def test_refuses(self):
        self.refuses("is below", {"x": np.zeros(2)}, {"gamma": -1.0}, AttributeTypeError)


class TestLabelWeight(OpTest):
    type = "label_weight"

    def cases(self, rng):
        x, label = rng.normal(size=(4, 3)), np.array([0, -100, 2, 2])
        weight = rng.uniform(0.5, 2, 3)
        yield Case({"x": x, "label": label, "weight": weight})
        yield Case({"x": x, "label": label})
        yield Case({"x": x, "label": np.array([[0], [1], [2], [1]], "int32"), "weight": weight})
        yield Case({"x": x, "label": label * 0 + 2}, {"ignore_index": 2})

    def reference(self, inputs, attrs):
        label = inputs["label"].reshape(-1)
        weight = inputs.get("weight", np.ones(3))
        valid = label != attrs["ignore_index"]
        return {"out": weight[label * valid] * valid}

    def test_refuses(self):
        x, label = np.zeros((2, 3)), np.array([0, 1])
        self.refuses("must agree", {"x": x, "label": label, "weight": np.zeros(2)})
        self.refuses("samples of x and label", {"x": x, "label": np.zeros(3, int)})
        with pytest.raises(RunError, match="holds 3 at sample 1"):
            self.output(Case({"x": x, "label": np.array([0, 3])}))
