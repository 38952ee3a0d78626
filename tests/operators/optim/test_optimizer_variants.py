"""Adamax, NAdam, RAdam and Lion: formulas, and PyTorch step for step."""

from contextlib import contextmanager

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest
from opscope.testing.optimizer_test import OptimizerTest, TorchOptimizerTest, torch_names


@contextmanager
def exact_numbers():
    """PyTorch keeps NAdam's product of momenta in its default dtype."""
    torch = pytest.importorskip("torch")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class TestAdamax(TorchOptimizerTest):
    type = "adamax"
    states = ("moment1", "norm")
    attrs = ({"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3},)
    step_slot = True

    def update(self, p, g, lr, s, a, step):
        m = a["beta1"] * s["moment1"] + (1 - a["beta1"]) * g
        u = np.maximum(a["beta2"] * s["norm"], np.abs(g) + a["epsilon"])
        return p - lr / (1 - a["beta1"] ** step) * m / u, m, u

    def torch_optimizer(self, torch, parameters, attrs):
        return torch.optim.Adamax(parameters, lr=0.1, **torch_names(attrs))


class TestRadam(TorchOptimizerTest):
    type = "radam"
    states = ("moment1", "moment2")
    attrs = ({"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}, {"beta1": 0.9, "beta2": 0.75})
    step_slot = True

    def inputs(self, rng, shape):
        """The rectified step, which begins with the sixth update for these attributes."""
        return super().inputs(rng, shape) | {"step": np.array(9)}

    def update(self, p, g, lr, s, a, step):
        b1, b2 = a["beta1"], a["beta2"]
        m, v = b1 * s["moment1"] + (1 - b1) * g, b2 * s["moment2"] + (1 - b2) * g * g
        end = 2 / (1 - b2) - 1
        rho = end - 2 * step * b2**step / (1 - b2**step)
        scale = 1.0
        if rho > 5:
            rectified = (rho - 4) * (rho - 2) * end / ((end - 4) * (end - 2) * rho)
            scale = np.sqrt(rectified * (1 - b2**step)) / (np.sqrt(v) + a["epsilon"])
        return p - lr * m / (1 - b1**step) * scale, m, v

    def torch_optimizer(self, torch, parameters, attrs):
        return torch.optim.RAdam(parameters, lr=0.1, **torch_names(attrs))

    def test_the_first_steps_are_those_of_momentum(self):
        rng = np.random.default_rng(1)
        for step in (1, 2, 5, 6):
            inputs = self.inputs(rng, (3, 4)) | {"step": np.array(step)}
            case = self.case(inputs)
            with np.errstate(all="raise"):
                found = self.output(case, "float64")
            attrs = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
            attrs |= {"weight_decay": 0.0, "lr_factor": 1.0}
            wanted = self.reference(inputs, attrs)
            np.testing.assert_allclose(found["param_out"], wanted["param_out"], rtol=1e-12)


class TestNadam(TorchOptimizerTest):
    type = "nadam"
    states = ("moment1", "moment2")
    numbers = {"correction": 0.75}
    attrs = ({"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3, "momentum_decay": 0.1},)
    step_slot = True

    def update(self, p, g, lr, s, a, step):
        b1, b2, decay = a["beta1"], a["beta2"], a["momentum_decay"]
        m, v = b1 * s["moment1"] + (1 - b1) * g, b2 * s["moment2"] + (1 - b2) * g * g
        mu, later = (b1 * (1 - 0.5 * 0.96 ** (t * decay)) for t in (step, step + 1))
        product = 1 - s["correction"]
        d = (1 - mu) * g / (1 - product) + later * m / (1 - product * later)
        return p - lr * d / (np.sqrt(v / (1 - b2**step)) + a["epsilon"]), m, v

    def torch_optimizer(self, torch, parameters, attrs):
        return torch.optim.NAdam(parameters, lr=0.1, **torch_names(attrs))

    @pytest.fixture(autouse=True)
    def exact_torch(self):
        with exact_numbers():
            yield

    def test_refuses_a_correction_of_several_numbers(self):
        good = self.inputs(np.random.default_rng(0), (3, 2))
        self.refuses("correction wants 0 dimensions", good | {"correction": np.zeros(2)})


class TestNadamCorrection(OpTest):
    type = "nadam_correction"
    exact_dtype = ("previous",)

    def cases(self, rng):
        for step in (1, 2, 1000):
            for attrs in ({}, {"beta1": 0.5, "momentum_decay": 0.1}):
                inputs = {"step": np.array(step), "previous": np.array(0.25)}
                yield Case(inputs, attrs)
                yield Case(inputs, attrs, share={"out": "previous"})

    def reference(self, inputs, attrs):
        mu = attrs["beta1"] * (1 - 0.5 * 0.96 ** (inputs["step"] * attrs["momentum_decay"]))
        return {"out": 1 - (1 - inputs["previous"]) * mu}

    def test_refuses(self):
        good = {"step": np.array(1), "previous": np.array(0.0)}
        self.refuses("step wants 0 dimensions", good | {"step": np.zeros(2, int)})
        self.refuses("integer dtype", good | {"step": np.array(1.0)})
        self.refuses("previous wants 0 dimensions", good | {"previous": np.zeros(2)})
        self.refuses("is above 1", good, {"beta1": 2.0}, AttributeTypeError)


class TestLion(OptimizerTest):
    type = "lion"
    states = ("moment",)
    attrs = ({"beta1": 0.5, "beta2": 0.8},)
    decoupled = True

    def update(self, p, g, lr, s, a, step):
        mix = a["beta1"] * s["moment"] + (1 - a["beta1"]) * g
        new = a["beta2"] * s["moment"] + (1 - a["beta2"]) * g
        return p * (1 - lr * a["weight_decay"]) - lr * np.sign(mix), new


# -- in nets ---------------------------------------------------------------------------------------


def fitted(optimizer, rate, steps=12, **attrs):
    """A least-squares net in float64 after some updates: its scope."""
    b = NetBuilder("lsq", dtype="float64")
    x, y = b.input("x", [-1, 3]), b.input("y", [-1, 2])
    w, c = b.parameter("w", [3, 2], 0.5), b.parameter("c", [2], 0.1, lr_factor=2.0)
    b.mean(b.squared_error(b.add_op("affine", x, w, c), y), name="loss")
    b.backward_from("loss")
    b.add_optimization(rate, optimizer, **attrs)
    scope, rng = Scope(), np.random.default_rng(3)
    feed = {"x": rng.normal(size=(8, 3)), "y": rng.normal(size=(8, 2))}
    for _ in range(steps):
        b.run(scope, feed=feed)
    return scope, feed


@pytest.mark.parametrize(
    ("name", "peer", "rate"),
    [("adamax", "Adamax", 0.02), ("nadam", "NAdam", 0.01), ("radam", "RAdam", 0.05)],
)
@pytest.mark.parametrize("fuse", ["0", "1"])
def test_whole_nets_equal_torch(name, peer, rate, fuse, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("OPSCOPE_FUSE", fuse)
    scope, feed = fitted(name, rate)
    x, y = torch.tensor(feed["x"]), torch.tensor(feed["y"])
    w = torch.full((3, 2), 0.5, dtype=torch.float64, requires_grad=True)
    c = torch.full((2,), 0.1, dtype=torch.float64, requires_grad=True)
    rates = np.float32(rate)  # as the variable holds it
    groups = [{"params": [w], "lr": float(rates)}, {"params": [c], "lr": 2 * float(rates)}]
    optimizer = getattr(torch.optim, peer)(groups)
    with exact_numbers():
        for _ in range(12):
            optimizer.zero_grad()
            ((x @ w + c - y) ** 2).mean().backward()
            optimizer.step()
    np.testing.assert_allclose(scope.numpy("w"), w.detach().numpy(), rtol=1e-10)
    np.testing.assert_allclose(scope.numpy("c"), c.detach().numpy(), rtol=1e-10)


@pytest.mark.parametrize("name", ["adamax", "nadam", "radam", "lion"])
def test_fused_updates_equal_the_kernels(name, monkeypatch):
    monkeypatch.setenv("OPSCOPE_FUSE", "1")
    fused, _ = fitted(name, 0.02, weight_decay=0.1)
    monkeypatch.setenv("OPSCOPE_FUSE", "0")
    plain, _ = fitted(name, 0.02, weight_decay=0.1)
    for variable in ("w", "c"):
        np.testing.assert_allclose(fused.numpy(variable), plain.numpy(variable), rtol=1e-12)


@pytest.mark.parametrize("name", ["adamax", "nadam", "radam", "lion"])
def test_the_updates_of_all_parameters_are_one_compiled_loop(name, monkeypatch):
    monkeypatch.setenv("OPSCOPE_FUSE", "1")
    b = NetBuilder()
    b.backward_from(b.mean(b.fc(b.input("x", [-1, 3]), 2)))
    b.add_optimization(0.1, name)
    scope = Scope()
    b.run(scope, feed={"x": np.ones((2, 3), "float32")})
    steps = b.net.frame(scope, OpContext(train=True)).plan.steps
    (update,) = [step for step in steps if name in [op.type for op in step.operators]]
    assert [op.type for op in update.operators] == [name, name] and update.loops
