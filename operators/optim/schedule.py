"""Learning-rate schedules: operators from the step counter to the learning rate of that step.

`step` numbers the update under way, counted from 1. Decays take t = step - 1, the updates done
before it, so that the first update sees the undiminished rate, as in PyTorch and Paddle; warm-ups
take the step itself, so that the first update is not at rate 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator


@dataclass(frozen=True)
class _Schedule:
    """A schedule.

    `rate(xp, step, t, a)` computes the learning rate in float64, `a` being the attributes.
    `check(attrs)` returns an error message, or "".
    """

    name: str
    doc: str
    attrs: tuple[AttrSpec, ...]
    rate: Callable[[Any, Any, Any, Any], Any]
    check: Callable[[dict[str, Any]], str] = lambda attrs: ""
    source: str = ""


def _steps(name: str, doc: str) -> AttrSpec:
    return AttrSpec(name, "int", doc, minimum=1)


def _factor(name: str, doc: str, default: float) -> AttrSpec:
    return AttrSpec(name, "float", doc, default, minimum=0)


_STAIRCASE = AttrSpec("staircase", "bool", "change only every decay_steps updates", False)
_END = _factor("end_learning_rate", "rate at the end", 0.0)
_TOTAL = _steps("total_steps", "updates until the end is reached")


def _constant(xp: Any, step: Any, t: Any, a: Any) -> Any:
    return a.learning_rate


def _step_decay(xp: Any, step: Any, t: Any, a: Any) -> Any:
    # By a formula of t, not by a product from step to step: training that goes on from a stored
    # step gets the same rate.
    return a.learning_rate * a.gamma ** xp.floor(t / a.step_size)


def _periods(xp: Any, t: Any, a: Any) -> Any:
    return xp.floor(t / a.decay_steps) if a.staircase else t / a.decay_steps


def _exponential(xp: Any, step: Any, t: Any, a: Any) -> Any:
    return a.learning_rate * a.decay_rate ** _periods(xp, t, a)


def _inverse_time(xp: Any, step: Any, t: Any, a: Any) -> Any:
    return a.learning_rate / (1 + a.decay_rate * _periods(xp, t, a))


def _polynomial(xp: Any, step: Any, t: Any, a: Any) -> Any:
    # At t = 0 no period has begun, and a span of 0 would be a divisor.
    rounds = xp.maximum(xp.ceil(t / a.decay_steps), 1) if a.cycle else 1
    # Held at the end: below 0 a broken power would be NaN.
    left = 1 - xp.minimum(t / (a.decay_steps * rounds), 1)
    return (a.learning_rate - a.end_learning_rate) * left**a.power + a.end_learning_rate


def _half_wave(xp: Any, share: Any) -> Any:
    # Held at the end: the cosine would rise again.
    return (1 + xp.cos(math.pi * xp.minimum(share, 1))) / 2


def _cosine(xp: Any, step: Any, t: Any, a: Any) -> Any:
    wave = _half_wave(xp, t / a.total_steps)
    return a.end_learning_rate + (a.learning_rate - a.end_learning_rate) * wave


def _linear_warmup(xp: Any, step: Any, t: Any, a: Any) -> Any:
    share = xp.minimum(step / a.warmup_steps, 1)
    return a.learning_rate * (a.start_factor + (1 - a.start_factor) * share)


def _warmup_cosine(xp: Any, step: Any, t: Any, a: Any) -> Any:
    rising = xp.minimum(step / a.warmup_steps, 1)
    # One of the two factors is always 1, so that their product needs no case.
    after = xp.maximum(step - a.warmup_steps, 0)
    falling = _half_wave(xp, after / (a.total_steps - a.warmup_steps))
    return a.end_learning_rate + (a.learning_rate - a.end_learning_rate) * rising * falling


def _noam(xp: Any, step: Any, t: Any, a: Any) -> Any:
    # Of the step, which is 1 at first: t = 0 has no inverse root.
    return a.learning_rate * a.d_model**-0.5 * xp.minimum(step**-0.5, step * a.warmup_steps**-1.5)


def _piecewise(xp: Any, step: Any, t: Any, a: Any) -> Any:
    rate = a.learning_rate * a.factors[0]
    for boundary, factor in zip(a.boundaries, a.factors[1:], strict=True):
        # Boundaries rise, so the last one that is passed decides. The step is data: no branch of
        # Python can read it when the kernel is bound.
        rate = xp.where(t >= boundary, a.learning_rate * factor, rate)
    return rate


def _check_piecewise(attrs: dict[str, Any]) -> str:
    boundaries, factors = attrs["boundaries"], attrs["factors"]
    if len(factors) != len(boundaries) + 1:
        return (
            f"{len(boundaries)} boundaries want {len(boundaries) + 1} factors, not {len(factors)}"
        )
    if any(b <= a for a, b in zip(boundaries, boundaries[1:], strict=False)):
        return f"boundaries must rise: {', '.join(map(str, boundaries))}"
    return ""


def _check_warmup(attrs: dict[str, Any]) -> str:
    if attrs["total_steps"] > attrs["warmup_steps"]:
        return ""
    return f"total_steps {attrs['total_steps']} must be above warmup_steps {attrs['warmup_steps']}"


_SCHEDULES = (
    _Schedule("constant", "out = learning_rate", (), _constant),
    _Schedule(
        "step_decay",
        "out = learning_rate gamma^floor(t / step_size)",
        (_steps("step_size", "updates between two decays"), _factor("gamma", "factor", 0.1)),
        _step_decay,
        source="PyTorch: torch.optim.lr_scheduler.StepLR",
    ),
    _Schedule(
        "exponential_decay",
        "out = learning_rate decay_rate^(t / decay_steps)",
        (
            _steps("decay_steps", "updates until the rate is decay_rate times as large"),
            _factor("decay_rate", "factor", 0.96),
            _STAIRCASE,
        ),
        _exponential,
        source="Paddle: layers/learning_rate_scheduler.py (exponential_decay)",
    ),
    _Schedule(
        "inverse_time_decay",
        "out = learning_rate / (1 + decay_rate t / decay_steps)",
        (
            _steps("decay_steps", "updates that count as one unit of time"),
            _factor("decay_rate", "speed of the decay", 1.0),
            _STAIRCASE,
        ),
        _inverse_time,
        source="Paddle: layers/learning_rate_scheduler.py (inverse_time_decay)",
    ),
    _Schedule(
        "polynomial_decay",
        "out = (learning_rate - end_learning_rate) (1 - min(t / decay_steps, 1))^power"
        " + end_learning_rate; with `cycle` decay_steps is multiplied by the rounds begun",
        (
            _steps("decay_steps", "updates until the end is reached"),
            _END,
            _factor("power", "exponent", 1.0),
            AttrSpec("cycle", "bool", "start again at the end", False),
        ),
        _polynomial,
        source="Paddle: layers/learning_rate_scheduler.py (polynomial_decay)",
    ),
    _Schedule(
        "cosine",
        "out = end_learning_rate + (learning_rate - end_learning_rate)"
        " (1 + cos(pi min(t / total_steps, 1))) / 2",
        (_TOTAL, _END),
        _cosine,
        source="Loshchilov and Hutter 2017; PyTorch: torch.optim.lr_scheduler.CosineAnnealingLR",
    ),
    _Schedule(
        "linear_warmup",
        "out = learning_rate (start_factor + (1 - start_factor) min(step / warmup_steps, 1))",
        (
            _steps("warmup_steps", "updates until the full rate is reached"),
            _factor("start_factor", "share of the rate before the first update", 0.0),
        ),
        _linear_warmup,
    ),
    _Schedule(
        "warmup_cosine",
        "out rises linearly over warmup_steps, as `lr_linear_warmup`, and then falls to"
        " end_learning_rate at total_steps, as `lr_cosine`",
        (_steps("warmup_steps", "updates until the full rate is reached"), _TOTAL, _END),
        _warmup_cosine,
        _check_warmup,
    ),
    _Schedule(
        "noam",
        "out = learning_rate d_model^-0.5 min(step^-0.5, step warmup_steps^-1.5)",
        (
            _steps("d_model", "width of the model"),
            _steps("warmup_steps", "updates until the largest rate"),
        ),
        _noam,
        source="Vaswani et al. 2017",
    ),
    _Schedule(
        "piecewise",
        "out = learning_rate factors[i], i being how many boundaries are at most t",
        (
            AttrSpec("boundaries", "ints", "updates after which the rate changes, rising"),
            AttrSpec("factors", "floats", "factors of learning_rate, one more than boundaries"),
        ),
        _piecewise,
        _check_piecewise,
        source="Paddle: layers/learning_rate_scheduler.py (piecewise_decay)",
    ),
)


def _register(schedule: _Schedule) -> None:
    def shape(s: ShapeArgs) -> None:
        s.rank("step", 0)
        s.integers("step")
        wrong = schedule.check(s.attrs)
        if wrong:
            s.fail(wrong)
        s.set("out", ((), np.float32))

    entry = operator(
        f"lr_{schedule.name}",
        doc=f"Learning-rate schedule: {schedule.doc}; t = step - 1.",
        inputs=[Slot("step", "number of this update, counted from 1, []")],
        outputs=[Slot("out", "learning rate, float32 []")],
        attrs=[_factor("learning_rate", "base rate", 0.01), *schedule.attrs],
        source=schedule.source,
        shape=shape,
        no_gradient="a schedule",
    )

    @entry.kernel
    def kernel(k: KernelArgs) -> Call:
        xp = k.xp
        step = k["step"]
        out = k["out"]
        rate = schedule.rate
        attrs = SimpleNamespace(**k.attrs)

        def run() -> None:
            # float64: float32 cannot count beyond 2^24. A step of 0, before training, has the rate
            # of the first.
            now = xp.maximum(step, 1).astype(xp.float64)
            out[...] = rate(xp, now, now - 1, attrs)

        return run


for _schedule in _SCHEDULES:
    _register(_schedule)
