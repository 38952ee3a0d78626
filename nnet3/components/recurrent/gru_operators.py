"""The operators of GRU nonlinearities, and the factors of their gradients for natural gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....framework.base.sizes.shape import ShapeArgs
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import Slot, operator
from ....operators.base.calls import reducing
from ....operators.base.fused import computed

_SOURCE = "Kaldi: nnet3/nnet-combined-component.cc"


def _sizes(s: ShapeArgs, rank: int) -> tuple[int, int]:
    """Rows of x and cells, for w [C, R] or [C]; x, w and repair are checked to fit each other."""
    rows, cols = s.rank("x", 2)
    cells, recurrent = (*s.rank("w", rank), 0)[:2]
    projected = 0 if cells == recurrent else recurrent
    wanted = 3 * cells + recurrent + projected if min(cells, recurrent) >= 0 else -1
    if min(cols, wanted) >= 0 and cols != wanted:
        s.fail(f"x wants {wanted} columns for this w and has {cols}")
    if s.has("repair"):
        s.same_shape("repair and [C]", s["repair"], (cells,))
    return rows, cells


def _gru_shape(rank: int, s: ShapeArgs) -> None:
    rows, cells = _sizes(s, rank)
    s.set("out", ((rows, 2 * cells if cells >= 0 else -1), s.floats("x", "w")))


gru = operator(
    "nnet3.gru",
    doc=(
        "Nonlinearity of a GRU. x [N, 3C+2R] holds z, r, the input part of h, the previous c' [C]"
        " and the previous recurrent s' [R]; with R = C there is no projection and x [N, 4C] holds"
        " no s', which is c'. w [C, R]. h = tanh(hpart + (r s') w'), c = (1 - z) h + z c'"
        " -> out [N, 2C] = h, c. `repair` [C] changes the gradient at the argument of h's tanh by"
        " -repair h."
    ),
    inputs=[
        Slot("x", "[N, 3C+2R] or [N, 4C]"),
        Slot("w", "[C, R]"),
        Slot("repair", "[C]: pushes of self-repair, see doc", optional=True),
    ],
    outputs=[Slot("out", "[N, 2C]")],
    source=_SOURCE,
    shape=partial(_gru_shape, 2),
)


def gru_parts(x: Any, cells: int, recurrent: int) -> tuple[Any, ...]:
    c, r = cells, recurrent
    return (
        x[:, :c],
        x[:, c : c + r],
        x[:, c + r : 2 * c + r],
        x[:, 2 * c + r : 3 * c + r],
        x[:, x.shape[1] - r :],  # -r would take all where r is 0
    )


_CELL = {"h": "tanh(part + fed)", "c": "h + z * (before - h)"}
"""The cell: h and c = (1 - z) h + z c', from the gate z, c' and both parts of the argument of h."""


@gru.kernel
def gru_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    w = k["w"]
    out = k["out"]
    cells, recurrent = w.shape
    z, r, part, before, state = gru_parts(k["x"], cells, recurrent)
    h, c = out[:, :cells], out[:, cells:]
    gated = k.scratch(r.shape, w.dtype)
    names = {"part": part, "fed": h, "z": z, "before": before}
    return in_order(
        partial(xp.multiply, r, state, gated),
        partial(xp.matmul, gated, w.T, out=h),
        computed(k, names, _CELL, {"h": h, "c": c}),
    )


def gru_delta(k: KernelArgs, z: Any, before: Any, d_z: Any, d_before: Any) -> tuple[Any, Call]:
    """The gradient of the argument of h's tanh, and the call for it and for z and c'.

    `d_z` and `d_before` receive gradients of z and of c' in the mix; both may be None.
    """
    out, grad = k["out"], k["out_grad"]
    cells = out.shape[1] // 2
    names = {"h": out[:, :cells], "z": z, "before": before}
    names |= {"d_h": grad[:, :cells], "d_c": grad[:, cells:]}
    push = ""
    if k.get("repair") is not None:
        names["repair"] = k["repair"]
        push = " - repair * h"
    formulas = {"delta": f"((1 - z) * d_c + d_h) * (1 - h * h){push}"}
    results = {"delta": k.scratch(names["h"].shape, out.dtype)}
    if d_z is not None:
        formulas |= {"d_z": "(before - h) * d_c", "d_before": "d_c * z"}
        results |= {"d_z": d_z, "d_before": d_before}
    return results["delta"], computed(k, names, formulas, results)


@gru.backward("x", "w")
def gru_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    w = k["w"]
    x = k["x"]
    x_grad = k.get("x_grad")
    cells, recurrent = w.shape
    z, r, _, before, state = gru_parts(x, cells, recurrent)
    d_z = d_r = d_part = d_before = d_state = None
    if x_grad is not None:
        d_z, d_r, d_part, d_before, d_state = gru_parts(x_grad, cells, recurrent)
    delta, mixed = gru_delta(k, z, before, d_z, d_before)
    calls: list[Call] = [mixed]
    if k.get("w_grad") is not None:
        gated = k.scratch(r.shape, w.dtype)
        calls += [
            partial(xp.multiply, r, state, gated),
            partial(xp.matmul, delta.T, gated, out=k["w_grad"]),
        ]
    if x_grad is not None:
        back = k.scratch(r.shape, w.dtype)
        calls += [
            partial(xp.copyto, d_part, delta),
            partial(xp.matmul, delta, w, out=back),
            partial(xp.multiply, back, state, d_r),
            partial(xp.multiply, back, r, back),
            partial(xp.add, d_state, back, d_state)
            if cells == recurrent  # s' is c', whose gradient is there already
            else partial(xp.copyto, d_state, back),
        ]
    return in_order(*calls)


output_gru = operator(
    "nnet3.output_gru",
    doc=(
        "Nonlinearity of an output-GRU. x [N, 3C] holds z, the input part of h and the previous c';"
        " w [C]. h = tanh(hpart + w c'), c = (1 - z) h + z c' -> out [N, 2C] = h, c."
        " `repair` [C] changes the gradient at the argument of h's tanh by -repair h."
    ),
    inputs=[
        Slot("x", "[N, 3C]"),
        Slot("w", "[C]"),
        Slot("repair", "[C]: pushes of self-repair, see doc", optional=True),
    ],
    outputs=[Slot("out", "[N, 2C]")],
    source=_SOURCE,
    shape=partial(_gru_shape, 1),
)


@output_gru.kernel
def output_gru_kernel(k: KernelArgs) -> Call:
    w, out, x = k["w"], k["out"], k["x"]
    cells = len(w)
    names = {n: x[:, i * cells : (i + 1) * cells] for i, n in enumerate(("z", "part", "before"))}
    formulas = {"fed": "before * w", **_CELL}
    return computed(k, {**names, "w": w}, formulas, {"h": out[:, :cells], "c": out[:, cells:]})


@output_gru.backward("x", "w")
def output_gru_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    w = k["w"]
    x = k["x"]
    x_grad = k.get("x_grad")
    cells = len(w)
    z, _, before = (x[:, i * cells : (i + 1) * cells] for i in range(3))
    d_z = d_part = d_before = None
    if x_grad is not None:
        d_z, d_part, d_before = (x_grad[:, i * cells : (i + 1) * cells] for i in range(3))
    delta, mixed = gru_delta(k, z, before, d_z, d_before)
    calls: list[Call] = [mixed]
    work = k.scratch(delta.shape, w.dtype)
    if k.get("w_grad") is not None:
        calls += [partial(xp.multiply, delta, before, work), reducing(xp, work, k["w_grad"])]
    if x_grad is not None:
        calls += [
            partial(xp.copyto, d_part, delta),
            partial(xp.multiply, delta, w, work),
            partial(xp.add, d_before, work, d_before),
        ]
    return in_order(*calls)


def _factors_operator(name: str, doc: str, weights: str, value: str, shape: Any) -> Any:
    return operator(
        f"nnet3.{name}_factors",
        doc=doc + " delta [N, C]: the gradient at the argument of h's tanh.",
        inputs=[
            Slot("x", f"as in nnet3.{name}"),
            Slot("w", weights),
            Slot("out", "[N, 2C]"),
            Slot("out_grad", "[N, 2C]"),
            Slot("repair", "[C]", optional=True),
        ],
        outputs=[Slot("value", value), Slot("delta", "[N, C]")],
        source="Kaldi: nnet3/nnet-combined-component.cc (UpdateParameters)",
        shape=shape,
        no_gradient="it serves updates of parameters",
    )


def _factors_shape(rank: int, s: ShapeArgs) -> None:
    dtype = s.floats("x", "w", "out", "out_grad")
    rows, cells = _sizes(s, rank)
    wanted = (rows, 2 * cells if cells >= 0 else -1)
    s.same_shape("out, out_grad and [N, 2C]", s["out"], s["out_grad"], wanted)
    s.set("value", ((rows, s["w"][-1]), dtype))
    s.set("delta", ((rows, cells), dtype))


gru_factors = _factors_operator(
    "gru",
    "Factors of the gradient of w in nnet3.gru, which is delta' value. value [N, R]: r s'.",
    "[C, R]",
    "[N, R]",
    partial(_factors_shape, 2),
)


@gru_factors.kernel
def gru_factors_kernel(k: KernelArgs) -> Call:
    z, r, _, before, state = gru_parts(k["x"], *k["w"].shape)
    delta, call = gru_delta(k, z, before, None, None)
    return in_order(
        call,
        partial(k.xp.copyto, k["delta"], delta),
        partial(k.xp.multiply, r, state, k["value"]),
    )


output_gru_factors = _factors_operator(
    "output_gru",
    "Factors of the gradient of w in nnet3.output_gru, the sum of delta * value over rows."
    " value [N, C]: c'.",
    "[C]",
    "[N, C]",
    partial(_factors_shape, 1),
)


@output_gru_factors.kernel
def output_gru_factors_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    cells = len(k["w"])
    before = x[:, 2 * cells : 3 * cells]
    delta, call = gru_delta(k, x[:, :cells], before, None, None)
    return in_order(
        call,
        partial(k.xp.copyto, k["delta"], delta),
        partial(k.xp.copyto, k["value"], before),
    )
