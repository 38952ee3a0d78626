"""Matrices in fewer bits, between the forward and the backward part of a computation.

What a rectified layer needs of its output, a byte a number that says whether it is above 0, has
compiled functions that work in blocks of rows, so that the gradient after them finds its numbers
in the cache.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion import team
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import bind
from ...framework.fusion.rows import row_blocks
from ...framework.fusion.rows.row_blocks import ByRows
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator

_SOURCE = "Kaldi: cudamatrix/cu-compressed-matrix.h"
_NO_GRADIENT = "compiled computations hold it, whose backward part is also compiled"
_RANGE = AttrSpec("range", "float", "greatest magnitude; 0: only whether x is above 0", minimum=0.0)

compress = operator(
    "nnet3.compress",
    doc=(
        "x in fewer bits: whole steps of range / largest, the nearest to x, cut at -largest and"
        " largest, where `largest` is the largest number of `dtype`; signed types only. With range"
        " 0, 1 where x is above 0, and 0 elsewhere."
    ),
    inputs=[Slot("x", "[N, D]")],
    outputs=[Slot("out", "[N, D] of `dtype`")],
    attrs=[_RANGE, AttrSpec("dtype", "dtype", "of the result: uint8 or int16")],
    source=_SOURCE,
    no_gradient=_NO_GRADIENT,
)


@compress.shape_rule
def compress_shape(s: ShapeArgs) -> None:
    s.floats("x")
    dtype = np.dtype(s.attrs["dtype"])
    if dtype.kind not in "iu":
        s.fail(f"stores whole numbers, not {dtype}")
    if dtype.kind == "u" and s.attrs["range"]:
        s.fail(f"{dtype} holds no numbers below 0")
    s.set("out", (s["x"], dtype))


@compress.kernel
def compress_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    limit = k.attrs["range"]
    if not limit:
        return partial(xp.greater, x, x.dtype.type(0), out, casting="unsafe")
    largest = np.iinfo(out.dtype).max
    work = k.scratch(x.shape, x.dtype)
    real = x.dtype.type
    return in_order(
        partial(xp.multiply, x, real(largest / limit), work),
        partial(xp.rint, work, work),
        partial(xp.clip, work, real(-largest), real(largest), work),
        partial(xp.copyto, out, work, casting="unsafe"),
    )


decompress = operator(
    "nnet3.decompress",
    doc="The matrix that `nnet3.compress` has compressed with the same range; range 0 copies.",
    inputs=[Slot("x", "[N, D], whole numbers")],
    outputs=[Slot("out", "[N, D] of `dtype`")],
    attrs=[_RANGE, AttrSpec("dtype", "dtype", "of the result", np.dtype("float32"))],
    source=_SOURCE,
    no_gradient=_NO_GRADIENT,
)


@decompress.shape_rule
def decompress_shape(s: ShapeArgs) -> None:
    if s.attrs["range"]:
        s.integers("x")
    s.set("out", (s["x"], s.attrs["dtype"]))


@decompress.kernel
def decompress_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    limit = k.attrs["range"]
    copy = partial(xp.copyto, out, x, casting="unsafe")
    if not limit:
        return copy
    step = out.dtype.type(limit / np.iinfo(x.dtype).max)
    return in_order(copy, partial(xp.multiply, out, step, out))


def _by_bytes(k: KernelArgs, name: str) -> Call | None:
    """The call of a compiled function that takes x to `out`, one of them of bytes."""
    arrays = x, out = k["x"], k["out"]
    reads, writes = row_blocks.span(x), row_blocks.span(out)
    dtypes = {array.dtype for array in arrays}
    if k.attrs["range"] or dtypes != {np.dtype("uint8"), np.dtype("float32")} or not x.size:
        return None
    library = native.load("bytes")
    if library is None or reads is None or writes is None:
        return None
    block = bind(library, name, rows=len(x), columns=x.shape[1], x=x, out=out)
    by = ByRows(len(x), (block.item,), (reads,), (writes,), block)
    return team.rows_task(by, x.size)


@compress.kernel(device="cpu", dtypes=(np.float32,), library="native")
def compress_to_bytes(k: KernelArgs) -> Call | None:
    return _by_bytes(k, "above_zero")


@decompress.kernel(device="cpu", dtypes=(np.float32,), library="native")
def decompress_bytes(k: KernelArgs) -> Call | None:
    return _by_bytes(k, "of_bytes")
