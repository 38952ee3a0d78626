"""Keys and values of earlier tokens, kept in one array that each run writes its own tokens to."""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.calls import copying

cache_append = operator(
    "cache_append",
    doc=(
        "Write T new rows of each sequence to a cache of S: out[n, past[n] + t] = x[n, t], and all"
        " other rows as in `cache`. Where out is the variable of the cache, only x is copied."
    ),
    inputs=[
        Slot("cache", "[N, S, ...], rows along `axis`"),
        Slot("x", "[N, T, ...]"),
        Slot("past", "int64 [N]: rows that the cache holds"),
    ],
    outputs=[Slot("out", "shape of cache", inplace="cache")],
    attrs=[AttrSpec("axis", "int", "of the rows, not the first", 1, 1)],
    source="ONNX's TensorScatter",
    no_gradient="caches are written where nothing is trained",
)


@cache_append.shape_rule
def cache_append_shape(s: ShapeArgs) -> None:
    cache, x = s["cache"], s["x"]
    axis = s.axis(s.attrs["axis"], len(cache))
    if s.dtype("x") != s.dtype("cache"):
        s.fail(f"x has {s.dtype('x')} and the cache {s.dtype('cache')}")
    check_past(s, cache[0])
    if len(x) != len(cache):
        s.fail(f"x has {len(x)} dimensions and the cache {len(cache)}")
    rows = [(*shape[:axis], *shape[axis + 1 :]) for shape in (x, cache)]
    s.same_shape("a row of x and one of the cache", *rows)
    if -1 not in (x[axis], cache[axis]) and x[axis] > cache[axis]:
        s.fail(f"{x[axis]} rows do not go into a cache of {cache[axis]}")
    s.set("out", (cache, s.dtype("cache")))


def check_past(s: ShapeArgs, sequences: int) -> None:
    """Refuse a slot `past` that is no int64 [N]."""
    if s.dtype("past") != np.int64:
        s.fail(f"past wants int64 and has {s.dtype('past')}")
    s.same("past and the sequences", *s.rank("past", 1), sequences)


@cache_append.kernel
def cache_append_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    axis = k.attrs["axis"]
    past, out = k["past"], k["out"]
    rows, x = (array.swapaxes(1, axis) for array in (out, k["x"]))
    sequences, steps = list(zip(rows, x, strict=True)), x.shape[1]
    copy = copying(xp, k["cache"], out)

    def run() -> None:
        if copy is not None:
            copy()
        begins = past.tolist()
        last = rows.shape[1] - steps
        if begins and not 0 <= min(begins) <= max(begins) <= last:
            begin = next(begin for begin in begins if not 0 <= begin <= last)
            raise RunError(
                k.describe(f"{steps} rows do not fit after {begin} into a cache of {rows.shape[1]}")
            )
        # One sequence after the other: they are few, and an index of all costs 9 us.
        for begin, (target, source) in zip(begins, sequences, strict=True):
            target[begin : begin + steps] = source

    return run
