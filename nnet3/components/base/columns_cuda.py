"""Batch normalization and statistics of columns in CUDA (library "cuda"), one kernel each."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....framework.fusion.device_kernels import TILE, by_blocks, cuda_text, elementwise, takes
from ....framework.ir.kernel_args import Call, KernelArgs

_SUMMED = {
    "value": "(x)",
    "square": "((x) * (x))",
    "sigmoid_slope": "((1 - (x)) * (x))",
    "tanh_slope": "(1 - (x) * (x))",
    "relu_slope": "(real)((x) > 0)",
}


def _text(total: str = "float32", of: str = "value") -> str:
    real = {"float32": "float", "float64": "double"}[total]
    return (
        f"#define OF(x) {_SUMMED[of]}\n{cuda_text('columns', 'batch_norm').replace('TOTAL', real)}"
    )


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


def _alike(dtype: Any, arrays: Any) -> bool:
    wanted = dtype in (np.float32, np.float64)
    return wanted and all(array is None or array.dtype == dtype for array in arrays)
