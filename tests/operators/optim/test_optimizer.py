"""Optimizers: formulas, PyTorch step for step, sparse rows, and the global norm."""

import numpy as np

from opscope.framework.base.errors import AttributeTypeError
from opscope.framework.ir.registry import lookup
from opscope.framework.passes.optimizer import optimizer_types
from opscope.testing import Case, OpTest
from opscope.testing.optimizer_test import TorchOptimizerTest, torch_names


class TestSgd(TorchOptimizerTest):
    type = "sgd"

    def update(self, p, g, lr, s, a, step):
        return (p - lr * g,)

    def torch_optimizer(self, torch, parameters, attrs):
        return torch.optim.SGD(parameters, lr=0.1, **attrs)


class TestMomentum(TorchOptimizerTest):
    type = "momentum"
    states = ("velocity",)
    attrs = ({"momentum": 0.5},)

    def update(self, p, g, lr, s, a, step):
        v = a["momentum"] * s["velocity"] + g
        return p - lr * v, v

    def torch_optimizer(self, torch, parameters, attrs):
        return torch.optim.SGD(parameters, lr=0.1, **{"momentum": 0.9, **attrs})


class TestNesterov(TestMomentum):
    type = "nesterov"

    def update(self, p, g, lr, s, a, step):
        v = a["momentum"] * s["velocity"] + g
        return p - lr * (g + a["momentum"] * v), v

    def torch_optimizer(self, torch, parameters, attrs):
        return torch.optim.SGD(parameters, lr=0.1, nesterov=True, **{"momentum": 0.9, **attrs})


class TestAdagrad(TorchOptimizerTest):
    type = "adagrad"
    states = ("moment",)
    attrs = ({"epsilon": 1e-3},)

    def update(self, p, g, lr, s, a, step):
        m = s["moment"] + g * g
        return p - lr * g / (np.sqrt(m) + a["epsilon"]), m

    def torch_optimizer(self, torch, parameters, attrs):
        return torch.optim.Adagrad(parameters, lr=0.1, **torch_names(attrs))


class TestAdadelta(TorchOptimizerTest):
    type = "adadelta"
    states = ("square_average", "update_average")
    attrs = ({"epsilon": 1e-3, "rho": 0.5},)

    def update(self, p, g, lr, s, a, step):
        rho, epsilon = a["rho"], a["epsilon"]
        squares = rho * s["square_average"] + (1 - rho) * g * g
        d = g * np.sqrt(s["update_average"] + epsilon) / np.sqrt(squares + epsilon)
        return p - lr * d, squares, rho * s["update_average"] + (1 - rho) * d * d

    def torch_optimizer(self, torch, parameters, attrs):
        return torch.optim.Adadelta(parameters, lr=0.1, **torch_names(attrs))


class TestRmsprop(TorchOptimizerTest):
    type = "rmsprop"
    states = ("square_average", "gradient_average", "velocity")
    attrs = ({"momentum": 0.9}, {"centered": True}, {"centered": True, "momentum": 0.5})

    def inputs(self, rng, shape):
        made = super().inputs(rng, shape)
        return made | {"gradient_average": 0.1 * made["gradient_average"]}

    def update(self, p, g, lr, s, a, step):
        alpha, mean, v = a["alpha"], s["gradient_average"], s["velocity"]
        squares = alpha * s["square_average"] + (1 - alpha) * g * g
        if a["centered"]:
            mean = alpha * mean + (1 - alpha) * g
        spread = squares - mean**2 if a["centered"] else squares
        d = g / (np.sqrt(spread) + a["epsilon"])
        if a["momentum"]:
            d = v = a["momentum"] * v + d
        return p - lr * d, squares, mean, v

    def torch_optimizer(self, torch, parameters, attrs):
        return torch.optim.RMSprop(parameters, lr=0.1, **torch_names(attrs))

    def test_states_that_are_not_needed_may_be_left_out(self):
        whole = self.inputs(np.random.default_rng(0), (3, 2))
        alone = {s: v for s, v in whole.items() if s not in ("gradient_average", "velocity")}
        wanted = self.output(self.case(whole))
        found = self.output(Case(alone))
        np.testing.assert_array_equal(found["param_out"], wanted["param_out"])
        self.refuses("momentum wants the state velocity", alone, {"momentum": 0.5})
        self.refuses("must be given together", whole)


class TestAdam(TorchOptimizerTest):
    type = "adam"
    states = ("moment1", "moment2")
    attrs = ({"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3},)
    step_slot = True

    def update(self, p, g, lr, s, a, step):
        b1, b2 = a["beta1"], a["beta2"]
        m, v = b1 * s["moment1"] + (1 - b1) * g, b2 * s["moment2"] + (1 - b2) * g * g
        d = m / (1 - b1**step) / (np.sqrt(v / (1 - b2**step)) + a["epsilon"])
        return p - lr * d, m, v

    def torch_optimizer(self, torch, parameters, attrs):
        return torch.optim.Adam(parameters, lr=0.1, **torch_names(attrs))


class TestAdamw(TestAdam):
    type = "adamw"
    decoupled = True

    def update(self, p, g, lr, s, a, step):
        return super().update(p * (1 - lr * a["weight_decay"]), g, lr, s, a, step)

    def torch_optimizer(self, torch, parameters, attrs):
        return torch.optim.AdamW(parameters, lr=0.1, **torch_names(attrs))


class TestGlobalNormScale(OpTest):
    type = "global_norm_scale"
    exact_dtype = ()

    def cases(self, rng):
        arrays = [rng.normal(size=(3, 4)), rng.normal(size=5), rng.normal(size=())]
        for clip_norm in (0.0, 0.5, 100.0):
            yield Case({"x": arrays}, {"clip_norm": clip_norm})
        yield Case({"x": [np.zeros((2, 2))]}, {"clip_norm": 1.0})

    def reference(self, inputs, attrs):
        norm = np.sqrt(sum((x**2).sum() for x in inputs["x"]))
        return {"scale": np.array(min(1.0, attrs["clip_norm"] / norm) if norm else 1.0)}

    def test_half_precision_does_not_overflow(self):
        x = np.full(100, 600, "float16")
        out = self.output(Case({"x": [x]}, {"clip_norm": 60.0}), "float16")["scale"]
        assert out.dtype == np.float32
        np.testing.assert_allclose(out, 0.01, rtol=1e-3)

    def test_refuses(self):
        self.refuses("floating dtype", {"x": [np.zeros(2), np.zeros(2, int)]}, {"clip_norm": 1.0})
        self.refuses("missing", {"x": [np.zeros(2)]}, {}, AttributeTypeError)


def test_every_optimizer_gives_expressions_for_all_its_outputs():
    others = {"lamb", "lars", "lbfgs"}  # which need norms and products of whole parameters
    for name in set(optimizer_types()) - others:
        entry = lookup(name)
        assert set(entry.expressions) == set(entry.output_slots), name
