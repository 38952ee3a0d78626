"""Elementwise operators with scalar expressions, for the tests of fusion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from opscope.framework.base.sizes.shape import ShapeArgs
from opscope.framework.ir.kernel_args import KernelArgs
from opscope.framework.ir.registry import AttrSpec, Slot, operator, unregister


def _broadcast(s: ShapeArgs) -> None:
    shapes = [s[slot] for slot in s.op.inputs]
    for slot in s.op.outputs:
        s.set(slot, (s.broadcast(*shapes), s.dtype(next(iter(s.op.inputs)))))


def _like_param(s: ShapeArgs) -> None:
    for slot in s.op.outputs:
        s.set(slot, (s["param"], s.dtype("param")))


def _into(function: Any, slots: tuple[str, ...]) -> Any:
    def bind(k: KernelArgs) -> Any:
        def run() -> None:
            k["out"][...] = function(*(k[slot] for slot in slots), **k.attrs)

        return run

    return bind


def _add(name: str, scalar: str, function: Any, slots: tuple[str, ...], **more: Any) -> str:
    op = operator(
        name,
        doc=scalar,
        inputs=[Slot(slot, "any") for slot in slots],
        outputs=[Slot("out", "broadcast", inplace=slots[0])],
        shape=_broadcast,
        scalar=scalar,
        **more,
    )
    op.kernel(_into(function, slots))
    return name


def _elu(x: Any, alpha: float) -> Any:
    return np.where(x > 0, x, alpha * (np.exp(x) - 1)).astype(x.dtype)


def _adam(k: KernelArgs) -> Any:
    a = k.attrs

    def run() -> None:
        grad, m, v, t = k["grad"], k["m"], k["v"], float(k["step"].item())
        if k.get("grad_scale") is not None:
            grad = grad * k["grad_scale"]
        m[...] = a["beta1"] * m + (1 - a["beta1"]) * grad
        v[...] = a["beta2"] * v + (1 - a["beta2"]) * grad * grad
        rate = float(k["lr"].item()) / (1 - a["beta1"] ** t)
        k["param"][...] -= rate * m / (np.sqrt(v / (1 - a["beta2"] ** t)) + a["epsilon"])

    return run


@contextmanager
def fuse_operators() -> Iterator[None]:
    """The operators, registered for as long as the context lasts."""
    alpha = [AttrSpec("alpha", "float", "factor", 1.0)]
    made = [
        _add("fz_add", "x + y", np.add, ("x", "y")),
        _add("fz_mul", "x * y", np.multiply, ("x", "y")),
        _add("fz_max", "x > y || isnan(x) ? x : y", np.maximum, ("x", "y")),
        _add("fz_tanh", "tanh(x)", np.tanh, ("x",)),
        _add("fz_elu", "x > 0 ? x : alpha * (exp(x) - 1)", _elu, ("x",), attrs=alpha),
        _add("fz_half", "1 / 2 * x", lambda x: x / 2, ("x",)),
        _add("fz_bad", "sinister(x)", lambda x: x, ("x",)),
    ]
    adam = operator(
        "fz_adam",
        doc="Adam",
        inputs=[
            *(Slot(name, "parameter's shape") for name in ("param", "grad", "m", "v")),
            *(Slot(name, "a scalar") for name in ("lr", "step")),
            Slot("grad_scale", "a scalar", optional=True),
            Slot("rows", "ids", optional=True),
        ],
        outputs=[
            Slot(f"{name}_out", name, inplace=name, intermediate=name != "param")
            for name in ("param", "m", "v")
        ],
        attrs=[
            AttrSpec("beta1", "float", "decay", 0.9),
            AttrSpec("beta2", "float", "decay", 0.999),
            AttrSpec("epsilon", "float", "floor", 1e-8),
        ],
        shape=_like_param,
        scalar={
            "m_out": "beta1 * m + (1 - beta1) * grad_scale * grad",
            "v_out": "beta2 * v + (1 - beta2) * grad_scale * grad * grad_scale * grad",
            "param_out": "param - lr / (1 - pow(beta1, step)) * m_out"
            " / (sqrt(v_out / (1 - pow(beta2, step))) + epsilon)",
        },
    )
    adam.kernel(_adam)
    made.append(adam.type)
    try:
        yield
    finally:
        for name in made:
            unregister(name)
