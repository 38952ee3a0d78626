"""Batch normalization, truncated gradients and statistics in CUDA (library "cuda")."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....framework.fusion.cuda.device_kernels import TILE, by_blocks, cuda_text, elementwise, takes
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs

_REAL = {"float32": "float", "float64": "double"}
_SUMMED = {
    "value": "(x)",
    "square": "((x) * (x))",
    "sigmoid_slope": "((1 - (x)) * (x))",
    "tanh_slope": "(1 - (x) * (x))",
    "relu_slope": "(real)((x) > 0)",
}


def _text(total: str = "float32", of: str = "value") -> str:
    text = cuda_text("columns", "batch_norm").replace("TOTAL", _REAL[total])
    return f"#define OF(x) {_SUMMED[of]}\n{text}"


def _blocks(width: int) -> int:
    return -(-width // TILE)


def batch_norm(k: KernelArgs) -> Call | None:
    x, width = k["x"], k.attrs["block"]
    memo = [k.get(slot) for slot in ("mean", "uvar", "scale")]
    if not x.size or not takes(x, k["out"], *memo):
        return None
    sizes = np.int64(x.size // width), np.int64(width)
    numbers = np.float64(k.attrs["epsilon"]), np.float64(k.attrs["target_rms"])
    given = x, k["out"], *memo, *sizes, *numbers
    return by_blocks(k.xp, _text(), "batch_norm", x.dtype, _blocks(width), given)


def batch_norm_grad(k: KernelArgs) -> Call | None:
    out, width = k["out"], k.attrs["block"]
    arrays = out, k["out_grad"], k["scale"], k["x_grad"]
    if not out.size or not takes(*arrays):
        return None
    sizes = np.int64(out.size // width), np.int64(width)
    given = *arrays, *sizes, np.float64(k.attrs["target_rms"])
    return by_blocks(k.xp, _text(), "batch_norm_grad", out.dtype, _blocks(width), given)


def batch_norm_statistics(k: KernelArgs) -> Call | None:
    mean, totals = k["mean"], ("sum", "sumsq", "count")
    arrays = [k[slot] for slot in (*totals, *(f"{slot}_out" for slot in totals))]
    total = arrays[0].dtype
    if not mean.size or not takes(mean, k["uvar"], *arrays) or not _alike(total, arrays):
        return None
    rows, cols = k.shape("x")
    width = mean.size
    given = mean, k["uvar"], *arrays, np.int64(width), np.int64(rows * cols // width)
    return elementwise(k.xp, _text(total.name), "batch_norm_statistics", mean.dtype, width, given)


def column_sums(k: KernelArgs) -> Call | None:
    x, total = k["x"], k["total"]
    arrays = [total, k.get("count"), k["total_out"], k.get("count_out")]
    if not x.size or not total.size or not takes(x, *arrays) or not _alike(total.dtype, arrays):
        return None
    rows, apart = x.shape
    given = x, *arrays, np.int64(rows), np.int64(total.size), np.int64(apart)
    text = _text(total.dtype.name, k.attrs["of"])
    return by_blocks(k.xp, text, "column_sums", x.dtype, _blocks(total.size), given)


def truncate_gradient_grad(k: KernelArgs) -> Call | None:
    grad, out, a = k["out_grad"], k["x_grad"], k.attrs
    if not grad.size or not takes(grad, out) or grad.dtype != out.dtype:
        return None
    rows, cols = grad.shape
    real = grad.dtype.type
    bounds = a["scale"] ** 2, a["clipping_threshold"] ** -2, a["zeroing_threshold"] ** 2
    given = grad, k.xp.asarray(a["boundary"]), out, np.int64(cols), *map(real, bounds)
    return by_blocks(k.xp, _recurrent(), "truncated_gradient", real, rows, given)


def lstm_statistics(k: KernelArgs) -> Call | None:
    xp, x, w, repair = k.xp, k["x"], k["w"], k.get("repair")
    totals = {name: k[name] for name in ("values", "slopes", "count", "repaired")}
    made = {name: k[f"{name}_out"] for name in totals}
    arrays = [*totals.values(), *made.values()]
    total, units = arrays[0].dtype, [repair, k.get("repair_out")]
    if not x.size or not takes(x, w, *arrays, *units) or not _alike(total, arrays):
        return None
    if any(one is not None and one.dtype != x.dtype for one in (w, *units)):
        return None
    (rows, apart), cells = x.shape, w.shape[1]
    text = _recurrent(total.name)
    sums = [one[name] for one in (totals, made) for name in ("values", "slopes", "count")]
    numbers = (np.int64(n) for n in (rows, cells, apart))
    given = x, w, *sums, *numbers
    bounds = (xp.asarray(np.array(k.attrs[name], np.float64)) for name in ("lower", "scale"))
    before = made["slopes"], made["count"], repair, totals["repaired"]
    then = *before, *bounds, made["repaired"], units[1], np.int64(rows), np.int64(cells)
    return in_order(
        by_blocks(xp, text, "lstm_statistics", x.dtype, _blocks(cells), given),
        by_blocks(xp, text, "lstm_repair", x.dtype, 1, then),
    )


def _recurrent(total: str = "float32") -> str:
    return cuda_text("columns", "recurrent").replace("TOTAL", _REAL[total])


def _alike(dtype: Any, arrays: Any) -> bool:
    wanted = dtype in (np.float32, np.float64)
    return wanted and all(array is None or array.dtype == dtype for array in arrays)
