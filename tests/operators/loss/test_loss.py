"""Losses over class labels and element by element, beside PyTorch's where that is installed."""

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError, RunError
from opscope.testing import Case, OpTest
from opscope.testing.op_setup import run


def probabilities(rng, *shape):
    x = rng.uniform(0.2, 1.0, shape)
    return x / x.sum(-1, keepdims=True)


def at_label(values, label, ignored):
    """values[label] of each sample, and the mask of samples that count."""
    label = np.reshape(label, values.shape[:-1])
    valid = label != ignored
    index = np.where(valid, label, 0).astype(np.int64)
    return np.take_along_axis(values, index[..., None], -1)[..., 0], valid


class OverClasses(OpTest):
    """Cases of index labels that all such losses share."""

    def x(self, rng, *shape):
        return rng.normal(size=shape)

    def index_cases(self, rng):
        yield Case({"x": self.x(rng, 4, 3), "label": np.array([0, 2, 1, 2])})
        yield Case({"x": self.x(rng, 4, 3), "label": np.array([[0], [2], [1], [2]], "int32")})
        yield Case({"x": self.x(rng, 2, 3, 4), "label": rng.integers(0, 4, (2, 3))})
        yield Case({"x": self.x(rng, 3, 40), "label": np.array([0, 39, 7], "uint8")})
        yield Case({"x": self.x(rng, 3, 40), "label": np.array([0, -100, 7], "int16")})
        yield Case({"x": self.x(rng, 3, 1), "label": np.zeros(3, int)})
        yield Case({"x": self.x(rng, 3), "label": np.array(1)})
        ignoring = {"x": self.x(rng, 4, 3), "label": np.array([0, 7, 1, 7])}
        yield Case(ignoring, {"ignore_index": 7})
        yield Case({"x": self.x(rng, 4, 3), "label": np.array([0, 2, 1, 0])}, {"ignore_index": 0})
        yield Case({"x": self.x(rng, 2, 3), "label": np.array([-100, -100])})

    def cases(self, rng):
        yield from self.index_cases(rng)

    def test_refuses(self):
        x, label = np.full((2, 3), 0.5, "float32"), np.array([0, 1])
        self.refuses("samples of x and label", {"x": x, "label": np.array([0, 1, 2])})
        self.refuses("must agree", {"x": x, "label": np.zeros((2, 3), int)})
        self.refuses("integer dtype", {"x": x, "label": x[:, 0]})
        self.refuses("floating dtype", {"x": x.astype(int), "label": label})
        self.refuses("no classes", {"x": x[:, :0], "label": label})
        self.refuses("at least 1", {"x": x[0, 0], "label": label})

    @pytest.mark.parametrize("bad", [3, -1, -100])
    @pytest.mark.parametrize("dtype", ["int64", "int32"])
    def test_label_out_of_range(self, bad, dtype):
        x, label = np.full((4, 3), 0.5), np.array([0, bad, 2, bad], dtype)
        with pytest.raises(RunError, match=f"label 'label' holds {bad} at sample 1, want 0 .. 2"):
            self.output(Case({"x": x, "label": label}, {"ignore_index": -7}))

    def test_ignored_samples_count_nothing_whatever_they_hold(self):
        x = np.array([[np.nan, 1.0], [0.5, 0.5], [0.0, np.inf]])
        case = Case({"x": x, "label": np.array([-100, 1, -100])})
        out = self.output(case)["out"]
        assert not out[::2].any() and np.isfinite(out[1])
        setup = self.setup(case, "float64", want=False)
        (gradient,) = setup.gradients(run(setup).arrays, ("x",)).values()
        assert not gradient[::2].any() and gradient[1].any()


class TestCrossEntropy(OverClasses):
    type = "cross_entropy"
    grad = ("x",)

    def x(self, rng, *shape):
        return probabilities(rng, *shape)

    def cases(self, rng):
        yield from self.index_cases(rng)
        for shape in ((4, 3), (2, 3, 5)):
            inputs = {"x": self.x(rng, *shape), "label": probabilities(rng, *shape)}
            yield Case(inputs, {"soft_label": True})

    def reference(self, inputs, attrs):
        x, label = inputs["x"], inputs["label"]
        if attrs["soft_label"]:
            return {"out": -(label * np.log(x)).sum(-1)}
        picked, valid = at_label(x, label, attrs["ignore_index"])
        return {"out": -np.log(picked) * valid}

    def test_of_a_probability_of_zero_is_finite(self):
        out = self.output(Case({"x": np.array([[0.0, 1.0]]), "label": np.array([0])}))["out"]
        assert np.isfinite(out).all() and out[0] > 80

    def test_refuses_soft_labels_of_another_shape(self):
        x = np.full((2, 3), 0.5, "float32")
        self.refuses("one shape", {"x": x, "label": x[:, :2]}, {"soft_label": True})
        self.refuses(
            "floating dtype", {"x": x, "label": np.eye(2, 3, dtype=int)}, {"soft_label": True}
        )
        self.refuses("want bool", {"x": x, "label": x}, {"soft_label": 1.5}, AttributeTypeError)


class TestNllLoss(OverClasses):
    type = "nll_loss"
    grad = ("x",)

    def reference(self, inputs, attrs):
        picked, valid = at_label(inputs["x"], inputs["label"], attrs["ignore_index"])
        return {"out": -picked * valid}


class TestSoftmaxCrossEntropy(OverClasses):
    type = "softmax_cross_entropy"
    grad = ("x",)
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        yield from self.index_cases(rng)
        for shape in ((4, 3), (2, 3, 5), (2, 50)):
            inputs = {"x": self.x(rng, *shape), "label": probabilities(rng, *shape)}
            yield Case(inputs, {"soft_label": True})
        unnormalized = {"x": self.x(rng, 3, 4), "label": rng.uniform(0, 2, (3, 4))}
        yield Case(unnormalized, {"soft_label": True})
        yield Case(unnormalized | {"weight": rng.uniform(0.5, 2, 4)}, {"soft_label": True})
        yield Case(unnormalized, {"soft_label": True, "label_smoothing": 0.2})
        for case in self.index_cases(rng):
            weight = rng.uniform(0.5, 2, case.inputs["x"].shape[-1])
            yield Case(case.inputs | {"weight": weight}, case.attrs)
            yield Case(case.inputs | {"weight": weight}, case.attrs | {"label_smoothing": 0.1})
            yield Case(case.inputs, case.attrs | {"label_smoothing": 0.3})

    def reference(self, inputs, attrs):
        x, label, weight = inputs["x"], inputs["label"], inputs.get("weight")
        shifted = x - x.max(-1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        smoothing = attrs["label_smoothing"]
        if attrs["soft_label"] or smoothing or weight is not None:
            valid = 1
            if not attrs["soft_label"]:
                samples = label.reshape(x.shape[:-1])
                valid = samples != attrs["ignore_index"]
                label = np.eye(x.shape[-1])[samples * valid]
            target = (1 - smoothing) * label + smoothing / x.shape[-1]
            target = target * (1 if weight is None else weight)
            return {"out": -(target * logs).sum(-1) * valid, "softmax": np.exp(logs)}
        picked, valid = at_label(logs, label, attrs["ignore_index"])
        return {"out": -picked * valid, "softmax": np.exp(logs)}

    @pytest.mark.parametrize("classes", [3, 100])
    def test_is_stable(self, classes):
        x = np.zeros((3, classes))
        x[:, 0] = [1e4, -1e4, 3e38]
        out = self.output(Case({"x": x, "label": np.array([1, 1, 0])}))["out"]
        np.testing.assert_allclose(out, [1e4, np.log(classes - 1), 0], rtol=1e-6)

    def test_ignored_samples_may_hold_nan_beside_smooth_labels(self):
        x = np.array([[np.nan, 1.0], [0.0, 0.0]])
        smooth = Case({"x": x, "label": np.array([-100, 1])}, {"label_smoothing": 0.5})
        np.testing.assert_allclose(self.output(smooth)["out"], [0, np.log(2)], rtol=1e-6)
        setup = self.setup(smooth, "float64", want=False)
        (gradient,) = setup.gradients(run(setup).arrays, ("x",)).values()
        assert not gradient[0].any() and gradient[1].any()

    @pytest.mark.parametrize("classes", [10, 100])
    def test_equals_torch(self, classes):
        torch = pytest.importorskip("torch")
        rng = np.random.default_rng(0)
        x, label = rng.normal(size=(8, classes)), rng.integers(0, classes, 8)
        label[3] = -100
        setup = self.setup(Case({"x": x, "label": label}), "float64")
        tensor = torch.tensor(x, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(tensor, torch.tensor(label), reduction="none")
        arrays = self.output(Case({"x": x, "label": label}), "float64")
        np.testing.assert_allclose(arrays["out"], loss.detach(), rtol=1e-12, atol=1e-14)
        loss.backward(torch.tensor(setup.seed("out")))
        (found,) = setup.gradients(arrays, ("x",)).values()
        np.testing.assert_allclose(found, tensor.grad, rtol=1e-12, atol=1e-14)


class Comparing(OpTest):
    """Losses of two arrays of one shape."""

    grad = ("x", "y")
    other = "y"
    attrs: tuple = ({},)

    def cases(self, rng):
        for attrs in self.attrs:
            for shape in ((3, 4), (5,), (2, 3, 2), (300,), ()):
                x = rng.normal(size=shape)
                gap = rng.choice([-1, 1], shape) * rng.choice([0.1, 0.3, 1.6, 2.4], shape)
                yield Case({"x": x, "y": x + gap}, attrs)

    def test_refuses(self):
        x = np.zeros((2, 3), "float32")
        self.refuses("must have one shape", {"x": x, self.other: x[:, :1]})
        self.refuses("must have one shape", {"x": x, self.other: x[0]})
        self.refuses("floating dtype", {"x": x, self.other: x.astype("float64")})
        self.refuses("floating dtype", {"x": x, self.other: x.astype("int64")})


class TestSquaredError(Comparing):
    type = "squared_error"

    def reference(self, inputs, attrs):
        return {"out": (inputs["x"] - inputs["y"]) ** 2}


class TestL1Loss(Comparing):
    type = "l1_loss"

    def reference(self, inputs, attrs):
        return {"out": np.abs(inputs["x"] - inputs["y"])}


class TestHuberLoss(Comparing):
    type = "huber_loss"
    attrs = ({}, {"delta": 0.2}, {"delta": 2})

    def reference(self, inputs, attrs):
        d, delta = np.abs(inputs["x"] - inputs["y"]), attrs["delta"]
        return {"out": np.where(d <= delta, d * d / 2, delta * (d - delta / 2))}

    def test_bound(self):
        x = np.zeros(2, "float32")
        self.refuses("is below", {"x": x, "y": x}, {"delta": 0.0}, AttributeTypeError)


class TestSmoothL1Loss(Comparing):
    type = "smooth_l1_loss"
    attrs = ({}, {"beta": 0.2}, {"beta": 2})

    def reference(self, inputs, attrs):
        d, beta = np.abs(inputs["x"] - inputs["y"]), attrs["beta"]
        return {"out": np.where(d < beta, d * d / (2 * beta), d - beta / 2)}


class Labeled(Comparing):
    other = "label"

    def cases(self, rng):
        for shape in ((3, 4), (5,), (2, 3, 2), (300,), ()):
            x = rng.choice([-3, -1.4, -0.5, 0.3, 0.8, 1.7, 30], shape)
            yield Case({"x": x, "label": self.label(rng, shape)})

    def label(self, rng, shape):
        return rng.uniform(size=shape)


class TestHingeLoss(Labeled):
    type = "hinge_loss"
    grad = ("x",)

    def label(self, rng, shape):
        return rng.integers(0, 2, shape).astype(float)

    def reference(self, inputs, attrs):
        return {"out": np.maximum(0, 1 - (2 * inputs["label"] - 1) * inputs["x"])}


class TestSigmoidCrossEntropy(Labeled):
    type = "sigmoid_cross_entropy"
    grad = ("x", "label")

    def reference(self, inputs, attrs):
        x, label = inputs["x"], inputs["label"]
        return {"out": np.logaddexp(0, x) - x * label}

    def test_is_stable(self):
        inputs = {"x": np.array([1e4, -1e4]), "label": np.array([0.0, 1.0])}
        np.testing.assert_array_equal(self.output(Case(inputs))["out"], [1e4, 1e4])


class TestKlDiv(Labeled):
    type = "kl_div"
    grad = ("x", "label")

    def label(self, rng, shape):
        return rng.uniform(0.2, 1, shape)

    def reference(self, inputs, attrs):
        return {"out": inputs["label"] * (np.log(inputs["label"]) - inputs["x"])}

    def test_of_a_label_of_zero(self):
        inputs = {"x": np.array([-1.0]), "label": np.array([0.0])}
        assert self.output(Case(inputs))["out"] == 0
