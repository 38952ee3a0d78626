"""Updates of parameters as CNTK's SGD makes them, and what comes before and after an update.

Source: CNTK's `SGDLib/SGD.cpp` (UpdateWeights), `Math/Matrix.cpp`, `CPUMatrix.cpp`,
`CPUSparseMatrix.cpp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....framework.base.sizes.shape import ShapeArgs
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator
from ....operators.base.calls import copying
from .learning import (
    COLUMNS_SLOT,
    RATE_ATTR,
    RATE_SLOT,
    ROWS_SLOT,
    SOURCE,
    Learner,
    check_control,
    check_rows,
    number,
    register,
)

_STEP = "(1 - momentum) * (rate * rate_factor) * grad"
"""What a dense gradient adds to a velocity: the rate goes into the state."""

_AVERAGE = AttrSpec("average", "bool", "divide by the average factor of the gradient", True)


# -- learners ------------------------------------------------------------------------------------


def _work(k: KernelArgs, shape: Any) -> Callable[[Any], Any]:
    """A function for scratch memory like an array: the same each time where the shape is fixed."""
    if shape is None:
        return k.xp.empty_like
    scratch = k.scratch(shape, k["grad"].dtype)
    return lambda array: scratch


def _momentum(k: KernelArgs, shape: Any) -> Callable[..., None]:
    xp = k.xp
    factor = k.attrs["rate_factor"]

    def update(control: list[float], p: Any, g: Any, states: Sequence[Any], count: Any) -> None:
        rate = control[0] * factor
        m = control[1]
        (s,) = states
        if m:
            xp.multiply(g, 1 - m, g)
            xp.multiply(s, m, s)
            xp.add(s, g, s)
            g = xp.multiply(s, rate)
        else:
            xp.multiply(g, rate, g)
        xp.subtract(p, g, p)

    return update


def _nesterov(k: KernelArgs, shape: Any) -> Callable[..., None]:
    xp = k.xp
    factor = k.attrs["rate_factor"]

    def update(control: list[float], p: Any, g: Any, states: Sequence[Any], count: Any) -> None:
        rate = control[0] * factor
        m = control[1]
        (s,) = states
        xp.multiply(g, 1 - m, g)
        xp.multiply(s, m, s)
        xp.add(s, g, s)
        step = xp.multiply(s, m)
        xp.add(step, g, step)
        xp.multiply(step, rate, step)
        xp.subtract(p, step, p)

    return update


def _adagrad(k: KernelArgs, shape: Any) -> Callable[..., None]:
    xp = k.xp
    factor = k.attrs["rate_factor"]
    average = k.attrs["average"]
    scratch = _work(k, shape)

    def update(control: list[float], p: Any, g: Any, states: Sequence[Any], count: Any) -> None:
        rate = control[0] * factor
        (a,) = states
        work = xp.multiply(g, g, scratch(g))
        xp.add(a, work, a)
        xp.add(a, 1e-16, work)
        xp.sqrt(work, work)
        xp.divide(g, work, g)
        if average:
            xp.reciprocal(work, work)
            rate = rate / float(work.mean())
        xp.multiply(g, rate, g)
        xp.subtract(p, g, p)

    return update


def _fs_adagrad(k: KernelArgs, shape: Any) -> Callable[..., None]:
    xp = k.xp
    factor = k.attrs["rate_factor"]
    constant, target = k.attrs["variance_time_constant"], k.attrs["target_denominator"]
    scratch = _work(k, shape)

    def update(control: list[float], p: Any, g: Any, states: Sequence[Any], count: Any) -> None:
        (rate, m, columns), (a, s) = control, states
        decay = math.exp(-columns / constant)
        count[...] = seen = decay * float(count) + (1 - decay) * columns
        decay = float(a.dtype.type(decay))  # 1 - decay has few digits then, and CNTK's are these
        work = xp.multiply(g, g, scratch(g))
        xp.multiply(work, 1 - decay, work)
        xp.multiply(a, decay, a)
        xp.add(a, work, a)
        xp.sqrt(a, work)
        with np.errstate(divide="ignore"):
            xp.divide(target * math.sqrt(seen), work, work)
        xp.minimum(work, 10, out=work)
        xp.multiply(g, work, g)  # where a is 0, g is
        if m > 0:
            xp.multiply(g, 1 - m, g)
            xp.multiply(s, m, s)
            xp.add(s, g, s)
            xp.copyto(g, s)
        xp.multiply(g, rate * factor, g)
        xp.subtract(p, g, p)

    return update


def _rms_prop(k: KernelArgs, shape: Any) -> Callable[..., None]:
    xp = k.xp
    a = k.attrs
    average = k.attrs["average"]
    decay = float(k["param"].dtype.type(a["gamma"]))  # see _fs_adagrad
    scratch, other = _work(k, shape), _work(k, shape)

    def update(control: list[float], p: Any, g: Any, states: Sequence[Any], count: Any) -> None:
        rate = control[0] * a["rate_factor"]
        (squares, signs, steps) = states
        work = xp.multiply(g, g, scratch(g))
        if float(count) == 0:
            xp.copyto(squares, work)
        count[...] += 1
        xp.multiply(work, 1 - decay, work)
        xp.multiply(squares, decay, squares)
        xp.add(squares, work, squares)
        same = xp.multiply(xp.sign(g, work), signs, signs) > 0
        xp.copyto(signs, work)
        larger = xp.minimum(xp.multiply(steps, a["increase"], other(g)), a["largest"], out=other(g))
        xp.maximum(xp.multiply(steps, a["decrease"], steps), a["smallest"], out=steps)
        xp.copyto(steps, larger, where=same)
        xp.add(squares, 1e-6, work)
        xp.sqrt(work, work)
        xp.divide(steps, work, work)
        xp.multiply(g, work, g)
        if average:
            rate = rate / float(work.mean())
        xp.multiply(g, rate, g)
        xp.subtract(p, g, p)

    return update


momentum_sgd = register(
    Learner(
        "cntk.momentum_sgd",
        "SGD with momentum of unit gain: s = (1 - m) rate grad + m s; param_out = param - s. With"
        " rows: s = (1 - m) grad + m s; param_out = param - rate s.",
        ("velocity",),
        _momentum,
        scalar={
            "velocity_out": f"{_STEP} + momentum * velocity",
            "param_out": "param - velocity_out",
        },
    )
)
nesterov = register(
    Learner(
        "cntk.nesterov",
        "Nesterov's momentum of unit gain: s = (1 - m) rate grad + m s;"
        " param_out = param - m s - (1 - m) rate grad. With rows the rate is outside of s.",
        ("velocity",),
        _nesterov,
        scalar={
            "velocity_out": f"{_STEP} + momentum * velocity",
            "param_out": f"param - (momentum * velocity_out + {_STEP})",
        },
    )
)
adagrad = register(
    Learner(
        "cntk.adagrad",
        "AdaGrad: a = a + grad^2; f = 1 / sqrt(a + 1e-16);"
        " param_out = param - rate / mean(f) f grad.",
        ("squares",),
        _adagrad,
        attrs=(_AVERAGE,),
    )
)
fs_adagrad = register(
    Learner(
        "cntk.fs_adagrad",
        "AdaGrad that forgets, with momentum: k = exp(-N / variance_time_constant);"
        " count = k count + (1 - k) N; a = k a + (1 - k) grad^2;"
        " g = grad min(10, target_denominator sqrt(count) / sqrt(a)); s = (1 - m) g + m s;"
        " param_out = param - rate s.",
        ("squares", "velocity"),
        _fs_adagrad,
        counted=True,
        grows=True,
        attrs=(
            AttrSpec("variance_time_constant", "float", "in samples", 720000.0),
            AttrSpec("target_denominator", "float", "typical size of a gradient", 1.0),
        ),
    )
)
rms_prop = register(
    Learner(
        "cntk.rms_prop",
        "RMSProp with a step size for each element: a = gamma a + (1 - gamma) grad^2, which starts"
        " as grad^2; the step, at first 0.02, grows where the sign of grad stays and shrinks"
        " elsewhere; f = step / sqrt(a + 1e-6); param_out = param - rate / mean(f) f grad.",
        ("squares", "signs", "steps"),
        _rms_prop,
        counted=True,
        counts=False,
        grows=True,
        initial={"steps": 0.02},
        attrs=(
            _AVERAGE,
            AttrSpec("gamma", "float", "weight of the old value in a", 0.99),
            AttrSpec("increase", "float", "factor of a step that grows", 1.2),
            AttrSpec("decrease", "float", "factor of a step that shrinks", 0.75),
            AttrSpec("largest", "float", "largest step", 10.0),
            AttrSpec("smallest", "float", "smallest step", 0.1),
        ),
    )
)


# -- before and after ----------------------------------------------------------------------------


def _like(slot: str, out: str) -> Callable[[ShapeArgs], None]:
    def rule(s: ShapeArgs) -> None:
        check_control(s)
        s.set(out, (s[slot], s.floats(slot)))

    return rule


clip_gradient = operator(
    "cntk.clip_gradient",
    doc=(
        "Gradient that is not larger than `threshold` N: every element, or with `norm` the root of"
        " the sum of all squares."
    ),
    inputs=[Slot("grad", "any shape"), COLUMNS_SLOT],
    outputs=[Slot("out", "shape of grad", inplace="grad")],
    attrs=[
        AttrSpec("threshold", "float", "for one sample", minimum=0),
        AttrSpec("norm", "bool", "scale the whole gradient", False),
    ],
    source=SOURCE,
    shape=_like("grad", "out"),
    no_gradient="it serves updates of parameters",
)


@clip_gradient.kernel
def clip_gradient_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["grad"]
    out = k["out"]
    threshold = k.attrs["threshold"]

    def truncate() -> None:
        most = threshold * number(k, "columns")
        xp.clip(grad, -most, most, out=out)

    def scale() -> None:
        most = threshold * number(k, "columns")
        norm = float(xp.sqrt((grad * grad).sum()))
        if norm > most:
            xp.multiply(grad, most / norm, out)
        elif out is not grad:
            xp.copyto(out, grad)

    return scale if k.attrs["norm"] else truncate


l2_gradient = operator(
    "cntk.l2_gradient",
    doc="Gradient plus the gradient of a square penalty: out = grad + weight N param.",
    inputs=[Slot("grad", "any shape"), Slot("param", "shape of grad"), COLUMNS_SLOT],
    outputs=[Slot("out", "shape of grad", inplace="grad")],
    attrs=[AttrSpec("weight", "float", "of the penalty, for one sample", minimum=0)],
    source=SOURCE,
    no_gradient="it serves updates of parameters",
    scalar="grad + weight * columns * param",
)


@l2_gradient.shape_rule
def l2_gradient_shape(s: ShapeArgs) -> None:
    s.same_shape("grad and param", s["grad"], s["param"])
    s.floats("param")
    _like("grad", "out")(s)


@l2_gradient.kernel
def l2_gradient_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["grad"]
    param = k["param"]
    out = k["out"]
    weight = k.attrs["weight"]
    work = k.scratch(param.shape, param.dtype)

    def run() -> None:
        xp.multiply(param, weight * number(k, "columns"), work)
        xp.add(grad, work, out)

    return run


soft_threshold = operator(
    "cntk.soft_threshold",
    doc=(
        "Step of an absolute penalty: every element moves towards 0 by weight rate N, and stops"
        " there. Here rate has the factor rate_factor, and N is columns."
    ),
    inputs=[Slot("param", "any shape"), RATE_SLOT, COLUMNS_SLOT],
    outputs=[Slot("param_out", "shape of param", inplace="param")],
    attrs=[AttrSpec("weight", "float", "of the penalty, for one sample", minimum=0), RATE_ATTR],
    source=SOURCE,
    shape=_like("param", "param_out"),
    no_gradient="an update of parameters",
)


@soft_threshold.kernel
def soft_threshold_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    param = k["param"]
    out = k["param_out"]
    factor = k.attrs["weight"] * k.attrs["rate_factor"]
    work = k.scratch(param.shape, param.dtype)

    def run() -> None:
        most = factor * number(k, "rate") * number(k, "columns")
        xp.clip(param, -most, most, out=work)
        xp.subtract(param, work, out)

    return run


def _weight_noise_shape(s: ShapeArgs) -> None:
    if s.has("rows"):
        s.integers("rows")
        s.rank("rows", 1)
        if not s["param"]:
            s.fail("param has no rows")
    s.set("param_out", (s["param"], s.floats("param")))


weight_noise = operator(
    "cntk.weight_noise",
    doc="Normally distributed noise on a parameter, or with `rows` on the rows named there.",
    inputs=[Slot("param", "any shape"), ROWS_SLOT],
    outputs=[Slot("param_out", "shape of param", inplace="param")],
    attrs=[AttrSpec("deviation", "float", "standard deviation", minimum=0)],
    source=SOURCE,
    shape=_weight_noise_shape,
    no_gradient="an update of parameters",
    random=True,
)


@weight_noise.kernel
def weight_noise_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    param = k["param"]
    out = k["param_out"]
    state = k.state
    dtype = k["param"].dtype
    deviation = k.attrs["deviation"]
    if "rows" in k.op.inputs:
        return in_order(copying(xp, param, out), partial(_noise_on_rows, k, out, deviation))
    noise = k.scratch(param.shape, dtype)

    def run() -> None:
        state.generator.standard_normal(noise.shape, dtype, out=noise)
        xp.multiply(noise, deviation, noise)
        xp.add(param, noise, out)

    return run


def _noise_on_rows(k: KernelArgs, param: Any, deviation: float) -> None:
    rows = k.xp.unique(k["rows"])
    rows = rows[rows >= 0]
    check_rows(k, rows, param)
    shape = (len(rows), *param.shape[1:])
    param[rows] += deviation * k.state.generator.standard_normal(shape, param.dtype)
