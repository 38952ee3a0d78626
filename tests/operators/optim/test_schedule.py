"""Learning-rate schedules against closed forms, and against PyTorch's."""

import math

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest


class ScheduleTest(OpTest):
    """`rate(step, a)` is the closed form; steps count from 1."""

    exact_dtype = ("out",)
    variants: tuple = ({},)
    steps = (1, 2, 3, 4, 5, 7, 10, 11, 15, 16, 20, 21, 100)

    def cases(self, rng):
        for attrs in self.variants:
            for step in self.steps:
                yield Case({"step": np.array(step)}, attrs)

    def reference(self, inputs, attrs):
        return {"out": np.float32(self.rate(int(inputs["step"]), attrs))}

    def test_a_step_before_the_first_counts_as_the_first(self):
        first, before = (
            self.output(Case({"step": np.array(s)}, self.variants[0]))["out"] for s in (1, 0)
        )
        assert first == before

    def test_refuses_a_step_that_is_no_integer_scalar(self):
        self.refuses("0 dimensions", {"step": np.array([1])}, self.variants[0])
        self.refuses("integer dtype", {"step": np.array(1.0)}, self.variants[0])
        error = AttributeTypeError
        bad = self.variants[0] | {"learning_rate": -1.0}
        self.refuses("is below 0", {"step": np.array(1)}, bad, error)


class TestConstant(ScheduleTest):
    type = "lr_constant"
    variants = ({}, {"learning_rate": 0.5})

    def rate(self, step, a):
        return a["learning_rate"]


class TestStepDecay(ScheduleTest):
    type = "lr_step_decay"
    variants = ({"step_size": 5}, {"step_size": 3, "gamma": 0.5, "learning_rate": 2.0})

    def rate(self, step, a):
        return a["learning_rate"] * a["gamma"] ** ((step - 1) // a["step_size"])

    def test_equals_torch(self):
        torch = pytest.importorskip("torch")
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.3)
        peer = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
        for step in range(1, 15):
            case = Case(
                {"step": np.array(step)}, {"learning_rate": 0.3, "step_size": 4, "gamma": 0.5}
            )
            np.testing.assert_allclose(self.output(case)["out"], peer.get_last_lr()[0], rtol=1e-6)
            optimizer.step()
            peer.step()

    def test_refuses_no_steps(self):
        self.refuses("below 1", {"step": np.array(1)}, {"step_size": 0}, AttributeTypeError)


class TestExponentialDecay(ScheduleTest):
    type = "lr_exponential_decay"
    variants = ({"decay_steps": 5}, {"decay_steps": 3, "decay_rate": 0.5, "staircase": True})

    def periods(self, step, a):
        t = (step - 1) / a["decay_steps"]
        return math.floor(t) if a["staircase"] else t

    def rate(self, step, a):
        return a["learning_rate"] * a["decay_rate"] ** self.periods(step, a)


class TestInverseTimeDecay(TestExponentialDecay):
    type = "lr_inverse_time_decay"

    def rate(self, step, a):
        return a["learning_rate"] / (1 + a["decay_rate"] * self.periods(step, a))


class TestPolynomialDecay(ScheduleTest):
    type = "lr_polynomial_decay"
    variants = (
        {"decay_steps": 10},
        {"decay_steps": 10, "power": 2.0, "end_learning_rate": 0.001},
        {"decay_steps": 5, "cycle": True},
    )

    def rate(self, step, a):
        t, span, end = step - 1, a["decay_steps"], a["end_learning_rate"]
        if a["cycle"]:
            span *= max(math.ceil(t / span), 1)
        return (a["learning_rate"] - end) * (1 - min(t, span) / span) ** a["power"] + end


def cosine(share):
    return (1 + math.cos(math.pi * min(share, 1))) / 2


class TestCosine(ScheduleTest):
    type = "lr_cosine"
    variants = ({"total_steps": 20}, {"total_steps": 10, "end_learning_rate": 0.002})

    def rate(self, step, a):
        end = a["end_learning_rate"]
        return end + (a["learning_rate"] - end) * cosine((step - 1) / a["total_steps"])


class TestLinearWarmup(ScheduleTest):
    type = "lr_linear_warmup"
    variants = ({"warmup_steps": 10}, {"warmup_steps": 4, "start_factor": 0.25})

    def rate(self, step, a):
        start = a["start_factor"]
        return a["learning_rate"] * (start + (1 - start) * min(step / a["warmup_steps"], 1))


class TestWarmupCosine(ScheduleTest):
    type = "lr_warmup_cosine"
    variants = (
        {"warmup_steps": 5, "total_steps": 20},
        {"warmup_steps": 1, "total_steps": 10, "end_learning_rate": 0.002},
    )

    def rate(self, step, a):
        warmup, end = a["warmup_steps"], a["end_learning_rate"]
        share = max(step - warmup, 0) / (a["total_steps"] - warmup)
        height = step / warmup if step < warmup else cosine(share)
        return end + (a["learning_rate"] - end) * height

    def test_refuses_a_warmup_without_end(self):
        attrs = {"warmup_steps": 5, "total_steps": 5}
        self.refuses("must be above warmup_steps 5", {"step": np.array(1)}, attrs)


class TestNoam(ScheduleTest):
    type = "lr_noam"
    variants = ({"d_model": 512, "warmup_steps": 10, "learning_rate": 1.0},)

    def rate(self, step, a):
        peak = min(step**-0.5, step * a["warmup_steps"] ** -1.5)
        return a["learning_rate"] * a["d_model"] ** -0.5 * peak


class TestPiecewise(ScheduleTest):
    type = "lr_piecewise"
    variants = (
        {"boundaries": [3, 10], "factors": [1.0, 0.5, 0.1]},
        {"boundaries": [], "factors": [2.0]},
    )

    def rate(self, step, a):
        passed = sum(step - 1 >= boundary for boundary in a["boundaries"])
        return a["learning_rate"] * a["factors"][passed]

    def test_refuses(self):
        step = {"step": np.array(1)}
        self.refuses("2 boundaries want 3 factors", step, {"boundaries": [1, 2], "factors": [1.0]})
        self.refuses("must rise", step, {"boundaries": [2, 2], "factors": [1.0, 0.5, 0.1]})
