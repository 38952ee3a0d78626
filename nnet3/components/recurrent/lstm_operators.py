"""The operators of LstmNonlinearityComponent: the cell with peepholes, and its statistics."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....framework.base.sizes.shape import ShapeArgs
from ....framework.fusion.rows.row_copies import copy_call, fill_call
from ....framework.fusion.scalars.array_calls import ChunkScratch
from ....framework.fusion.team import in_order, recordable
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator
from ....operators.backends.column_sums import sum_of_rows
from ....operators.base.fused import called, computed, fused
from ..base.statistics import NO_GRADIENT, keep_totals, totals_slots

_SOURCE = "Kaldi: nnet3/nnet-combined-component.cc, cudamatrix/cu-math.cc"
_CHUNK = 1 << 16  # elements


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


def _cells(s: ShapeArgs) -> int:
    """How many cells w has; x and w are checked to have them."""
    s.floats("x", "w")
    cols = s.rank("x", 2)[1]
    three, cells = s.rank("w", 2)
    s.same("the rows of w and 3", three, 3)
    if cols >= 0 and cells >= 0 and cols not in (5 * cells, 5 * cells + 3):
        s.fail(f"x wants {5 * cells} or {5 * cells + 3} columns for {cells} cells and has {cols}")
    return cells


@lstm.shape_rule
def lstm_shape(s: ShapeArgs) -> None:
    cells = _cells(s)
    if s.has("repair"):
        s.same_shape("repair and [5, C]", s["repair"], (5, cells))
    s.set("out", ((s["x"][0], 2 * cells if cells >= 0 else -1), s.dtype("x")))


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
    out = k["out"]
    cells = k["w"].shape[1]
    names, formulas = lstm_formulas(k)
    return computed(k, names, formulas, {"c": out[:, :cells], "m": out[:, cells:]})


@lstm.backward("x", "w")
def lstm_grad_kernel(k: KernelArgs) -> Call:
    x_grad = k.get("x_grad")
    w_grad = k.get("w_grad")
    cells = k["w"].shape[1]
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
    results: dict[str, Any] = {}
    after: list[Call] = []
    if x_grad is not None:
        for number, name in enumerate(("d_i", "d_f", "d_g", "d_o", "d_b")):
            results[name] = x_grad[:, number * cells : (number + 1) * cells]
        if x_grad.shape[1] > 5 * cells:
            after.append(fill_call(x_grad[:, 5 * cells :], 0))
    rows = len(grad)
    if w_grad is not None:
        # Terms of sums over rows go through memory in chunks that stay in the cache.
        rows = min(rows, max(1, _CHUNK // (3 * cells)))
        shares = k.scratch((rows, 3 * cells), grad.dtype)
        sums = k.scratch((-(-len(grad) // max(rows, 1)), 3 * cells), grad.dtype)
        total = k.scratch((3 * cells,), grad.dtype)
        after += [sum_of_rows(k, sums, total), copy_call(k.xp, total.reshape(3, cells), w_grad)]
    calls: list[Call | None] = []
    scratch = ChunkScratch(k)
    for begin in range(0, len(grad), max(rows, 1)):
        chunk = slice(begin, min(begin + rows, len(grad)))
        inputs = {n: array if array.ndim == 1 else array[chunk] for n, array in names.items()}
        targets = {name: array[chunk] for name, array in results.items()}
        if w_grad is not None:
            terms = shares[: chunk.stop - begin]
            for number, name in enumerate(("w_i", "w_f", "w_o")):
                targets[name] = terms[:, number * cells : (number + 1) * cells]
        scratch.begin()
        call = fused(k, inputs, formulas, targets)
        calls += called(scratch, inputs, formulas, targets) if call is None else [call]
        if w_grad is not None:
            calls.append(sum_of_rows(k, terms, sums[begin // rows]))
    return in_order(*calls, *after)


_IN, _OUT = totals_slots(
    values="[5, C]",
    slopes="[5, C]",
    count="[1]: rows so far",
    repaired="[5]: rows times units that were repaired",
)

lstm_statistics = operator(
    "nnet3.lstm_statistics",
    doc=(
        "Adds the sums over rows of the five nonlinearities of `nnet3.lstm`, i, f, c, o and the"
        " cell's, to values [5, C], the sums of their slopes to slopes [5, C], and N to count [1]."
        " Self-repair: N times the units that `repair` [5, C] has just changed are added to"
        " repaired [5]; repair_out is `scale` where the average slope is now below `lower`, and 0"
        " elsewhere."
    ),
    inputs=[
        Slot("x", "[N, 5C] or [N, 5C+3]"),
        Slot("w", "[3, C]"),
        *_IN,
        Slot("repair", "[5, C]: of this batch", optional=True),
    ],
    outputs=[*_OUT, Slot("repair_out", "[5, C]: of the next batch", optional=True)],
    attrs=[
        AttrSpec("lower", "floats", "[5]: least average slopes that are left alone", [0.0] * 5),
        AttrSpec("scale", "floats", "[5]: strengths of self-repair", [0.0] * 5),
    ],
    source="Kaldi: cudamatrix/cu-math.cc",
    no_gradient=NO_GRADIENT,
)


@lstm_statistics.shape_rule
def lstm_statistics_shape(s: ShapeArgs) -> None:
    shape = (5, _cells(s))
    keep_totals(s, values=shape, slopes=shape, count=(1,), repaired=(5,))
    if s.has("repair"):
        keep_totals(s, repair=shape)
    for name in ("lower", "scale"):
        if len(s.attrs[name]) != 5:
            s.fail(f"{name} has {len(s.attrs[name])} numbers, one for each of 5 nonlinearities")


@lstm_statistics.kernel
def lstm_statistics_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    dtype = k["x"].dtype
    shape = (k["x"].shape[0], k["w"].shape[1])
    names, formulas = lstm_formulas(k)
    gates = {name: k.scratch(shape, dtype) for name in ("i", "f", "g", "o", "t")}
    values = tuple(gates.values())
    work = k.scratch(shape, dtype)
    sums = k.scratch((5, shape[1]), "f8")
    one = dtype.type(1)

    def slopes() -> None:
        for number, value in enumerate(values):
            if number in (2, 4):
                xp.multiply(value, value, work)
                xp.subtract(one, work, work)
            else:
                xp.subtract(one, value, work)
                xp.multiply(work, value, work)
            xp.sum(work, axis=0, out=sums[number])

    rows = k.shape("x")[0]
    repair = k.get("repair")

    def count_repaired() -> None:
        xp.copyto(k["repaired_out"], k["repaired"])
        if repair is not None:
            xp.add(k["repaired_out"], rows * (repair != 0).sum(axis=1), k["repaired_out"])

    def next_repair() -> None:
        low = k["slopes_out"] < lower * (1 + k["count_out"])
        xp.multiply(low, scale, k["repair_out"], casting="unsafe")

    lower, scale = (xp.asarray(k.attrs[name])[:, None] for name in ("lower", "scale"))
    return in_order(
        computed(k, names, formulas, gates),
        *(partial(xp.sum, value, axis=0, out=sums[i]) for i, value in enumerate(values)),
        partial(xp.add, k["values"], sums, k["values_out"]),
        recordable(slopes),
        partial(xp.add, k["slopes"], sums, k["slopes_out"]),
        partial(xp.add, k["count"], rows, k["count_out"]),
        recordable(count_repaired),
        *([] if repair is None else [recordable(next_repair)]),
    )
