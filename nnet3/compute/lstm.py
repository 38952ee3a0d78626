"""Nonlinearity of an LSTM cell with peepholes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.shape import ShapeArgs
from ...framework.fusion.array_calls import PieceScratch
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ...operators.base.calls import in_order, reducing
from .fused import called, computed, fused
from .lowering import OUT, Recipe, X, lowers

_SOURCE = "Kaldi: nnet3/nnet-combined-component.cc, cudamatrix/cu-math.cc"
_PIECE = 1 << 16  # elements


@lowers("LstmNonlinearityComponent")
def lower_lstm_nonlinearity_component(component: Any, recipe: Recipe) -> None:
    lower, scale = component.self_repair_config.reshape(2, 5)
    inputs = {"x": X, "w": recipe.parameter("params", component.params)}
    repair = {}
    if scale.any():
        slopes = component.deriv_sum / (1.0 + component.count)
        push = np.where(slopes < lower[:, None], scale[:, None], 0).astype(np.float32)
        repair["repair"] = recipe.parameter("self_repair", push, trainable=False)
    recipe.op("nnet3.lstm", OUT, **inputs, **repair)
    shape = (5, component.cell_dim)
    totals = {
        "values": recipe.state("value_sum", component.value_sum, shape),
        "slopes": recipe.state("deriv_sum", component.deriv_sum, shape),
        "count": recipe.state("count", component.count),
        "repaired": recipe.state("self_repair_total", component.self_repair_total, (5,)),
    }
    attrs = {"lower": lower.tolist(), "scale": scale.tolist()}
    recipe.keep("nnet3.lstm_statistics", attrs, when="after", **inputs, **totals, **repair)


lstm = operator(
    "nnet3.lstm",
    doc=(
        "Gates of an LSTM with peepholes. x [N, 5C] holds the parts i, f, c, o and the previous"
        " cell c'; x [N, 5C+3] also factors of i, f and o (dropout masks, no gradient). w [3, C]"
        " holds the peephole weights wi, wf, wo. c = sigmoid(f + wf c') c' + sigmoid(i + wi c')"
        " tanh(part c), m = sigmoid(o + wo c) tanh(c) -> out [N, 2C] = c, m."
        " `repair` [5, C] changes the gradients at the arguments of the nonlinearities i, f, tanh"
        " of part c, o and tanh of c, by -repair (2 y - 1) for a sigmoid y, -repair y for a tanh."
    ),
    inputs=[
        Slot("x", "[N, 5C] or [N, 5C+3]"),
        Slot("w", "[3, C]"),
        Slot("repair", "[5, C]: pushes of self-repair, see doc", optional=True),
    ],
    outputs=[Slot("out", "[N, 2C]", not_in_gradient=True)],
    source=_SOURCE,
)


@lstm.shape_rule
def lstm_shape(s: ShapeArgs) -> None:
    dtype = s.floats("x", "w")
    rows, cols = s.rank("x", 2)
    three, cells = s.rank("w", 2)
    s.same("the rows of w and 3", three, 3)
    if s.has("repair"):
        s.same_shape("repair and [5, C]", s["repair"], (5, cells))
    if cols >= 0 and cells >= 0 and cols not in (5 * cells, 5 * cells + 3):
        s.fail(f"x wants {5 * cells} or {5 * cells + 3} columns for {cells} cells and has {cols}")
    s.set("out", ((rows, 2 * cells if cells >= 0 else -1), dtype))


def lstm_formulas(k: KernelArgs) -> tuple[dict[str, Any], dict[str, str]]:
    """Arrays and formulas of the forward pass, for `computed`; see the operator's doc.

    The formulas i, f, g, o and t are the values of the five nonlinearities, c is the new cell and m
    its output.
    """
    x, w = k["x"], k["w"]
    cells = w.shape[1]
    names = {
        n: x[:, i * cells : (i + 1) * cells] for i, n in enumerate(("pi", "pf", "pg", "po", "b"))
    }
    names |= {name: w[i] for i, name in enumerate(("wi", "wf", "wo"))}
    si = sf = so = ""
    if x.shape[1] > 5 * cells:
        names |= {name: x[:, 5 * cells + i, None] for i, name in enumerate(("si", "sf", "so"))}
        si, sf, so = " * si", " * sf", " * so"
    formulas = {
        "i": "1 / (1 + exp(-(pi + wi * b)))",
        "f": "1 / (1 + exp(-(pf + wf * b)))",
        "g": "tanh(pg)",
        "c": f"f * b{sf} + i * g{si}",
        "o": "1 / (1 + exp(-(po + wo * c)))",
        "t": "tanh(c)",
        "m": f"o * t{so}",
    }
    return names, formulas


@lstm.kernel
def lstm_kernel(k: KernelArgs) -> Call:
    out, cells = k["out"], k["w"].shape[1]
    names, formulas = lstm_formulas(k)
    return computed(k, names, formulas, {"c": out[:, :cells], "m": out[:, cells:]})


@lstm.backward("x", "w")
def lstm_grad_kernel(k: KernelArgs) -> Call:
    x_grad, w_grad, cells = k.get("x_grad"), k.get("w_grad"), k["w"].shape[1]
    names, formulas = lstm_formulas(k)
    grad = k["out_grad"]
    names |= {"grad_c": grad[:, :cells], "grad_m": grad[:, cells:]}
    si, sf, so = (f" * {name}" if name in names else "" for name in ("si", "sf", "so"))
    repair = k.get("repair")
    pushes = ["" for _ in range(5)]
    if repair is not None:
        names |= {f"r{i}": repair[i] for i in range(5)}
        values = ("(2 * i - 1)", "(2 * f - 1)", "g", "(2 * o - 1)", "t")
        pushes = [f" - r{number} * {value}" for number, value in enumerate(values)]
    formulas |= {
        "d_o": f"t * grad_m{so} * o * (1 - o){pushes[3]}",
        "dc": f"o * grad_m{so} * (1 - t * t) + grad_c + d_o * wo{pushes[4]}",
        "d_f": f"dc * b{sf} * f * (1 - f){pushes[1]}",
        "d_i": f"dc * g{si} * i * (1 - i){pushes[0]}",
        "d_g": f"dc * i{si} * (1 - g * g){pushes[2]}",
        "d_b": f"dc * f{sf} + d_i * wi + d_f * wf",
        "w_i": "d_i * b",
        "w_f": "d_f * b",
        "w_o": "d_o * c",
    }
    results, before, after = {}, [], []
    if x_grad is not None:
        for number, name in enumerate(("d_i", "d_f", "d_g", "d_o", "d_b")):
            results[name] = x_grad[:, number * cells : (number + 1) * cells]
        if x_grad.shape[1] > 5 * cells:
            after.append(partial(x_grad[:, 5 * cells :].fill, 0))
    rows = len(grad)
    if w_grad is not None:
        # What is summed over rows goes through memory by pieces that stay in the cache.
        rows = min(rows, max(1, _PIECE // (3 * cells)))
        shares = k.scratch((rows, 3 * cells), grad.dtype)
        share, total = (k.scratch((3 * cells,), grad.dtype) for _ in range(2))
        before.append(partial(total.fill, 0))
        after.append(partial(k.xp.copyto, w_grad, total.reshape(3, cells)))
    calls: list[Call | None] = []
    scratch = PieceScratch(k)
    for begin in range(0, len(grad), max(rows, 1)):
        piece = slice(begin, min(begin + rows, len(grad)))
        given = {n: array if array.ndim == 1 else array[piece] for n, array in names.items()}
        found = {name: array[piece] for name, array in results.items()}
        if w_grad is not None:
            part = shares[: piece.stop - begin]
            for number, name in enumerate(("w_i", "w_f", "w_o")):
                found[name] = part[:, number * cells : (number + 1) * cells]
        scratch.begin()
        call = fused(k, given, formulas, found)
        calls += called(scratch, given, formulas, found) if call is None else [call]
        if w_grad is not None:
            calls += [reducing(k.xp, part, share), partial(k.xp.add, total, share, total)]
    return in_order(*before, *calls, *after)
