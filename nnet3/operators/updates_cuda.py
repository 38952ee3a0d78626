"""Updates of Kaldi's trainer in CUDA: rates, norms and scales stay on the GPU (library "cuda").

One kernel takes all arrays of a component, through a table of their addresses.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...framework.fusion.cuda.cublas import multiply
from ...framework.fusion.cuda.device_kernels import (
    by_blocks,
    cuda_text,
    elementwise,
    pointers,
    table_of,
    takes,
)
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...operators.base.calls import copying
from ...operators.base.ranks import ranks_of
from .updates import UPDATE_SPEED


def _text(factor: str = "float32") -> str:
    """The kernels, with the type of the factor of `scale_states`."""
    return cuda_text("updates").replace("FACTOR", "float" if factor == "float32" else "double")


def parameter_delta(k: KernelArgs) -> Call | None:
    params, targets = k.list("param"), k.list("delta_out")
    none = [None] * len(params)
    columns = params, k.list("grad") or none, k.list("delta") or none, targets
    if not takes(*(array for column in columns for array in column)):
        return None
    table, ends, size = table_of(k.xp, list(zip(*columns, strict=True)))
    if not size:
        return nothing
    real = params[0].dtype.type
    numbers = np.int64(size), real(k.attrs["l2"]), real(k.attrs["momentum"])
    given = table, ends, k["rate"], k["l2_scale"], k.get("kept"), *numbers
    return elementwise(k.xp, _text(), "parameter_delta", real, size, given)


def max_change(k: KernelArgs) -> Call | None:
    xp = k.xp
    deltas, counts = k.list("delta"), k.attrs["arrays"]
    if not deltas or not takes(*deltas):
        return None
    real = deltas[0].dtype
    starts = xp.asarray(np.cumsum([0, *counts]).astype(np.int64))
    sizes = xp.asarray(np.array([delta.size for delta in deltas], np.int64))
    squares = k.scratch((len(counts),), np.float64)
    numbers = np.int64(len(counts)), np.float64(k.attrs["total"])
    slots = ("scale", "bound_scale", "scales", "factors", "change", "kept")
    given = squares, xp.asarray(np.array(k.attrs["bounds"])), *(k[slot] for slot in slots)
    changes = pointers(xp, deltas), sizes, starts, squares
    return in_order(
        by_blocks(xp, _text(), "squares_of_changes", real, len(counts), changes),
        by_blocks(xp, _text(), "bounded_changes", real, 1, (*given, *numbers)),
    )


def apply_change(k: KernelArgs) -> Call | None:
    columns = k.list("param"), k.list("delta"), k.list("param_out")
    if not takes(*(array for column in columns for array in column)):
        return None
    table, ends, size = table_of(k.xp, list(zip(*columns, strict=True)))
    if not size:
        return nothing
    given = table, ends, k["scales"], np.int64(size), np.int64(k.attrs["index"])
    return elementwise(k.xp, _text(), "apply_change", columns[0][0].dtype, size, given)


def scale_states(k: KernelArgs) -> Call | None:
    columns = k.list("x"), k.list("x_out")
    arrays = [array for column in columns for array in column]
    real, factor = arrays[0].dtype, k["factor"]
    if not takes(*arrays) or any(array.dtype != real for array in arrays):
        return None
    table, ends, size = table_of(k.xp, list(zip(*columns, strict=True)))
    if not size:
        return nothing
    given = table, ends, factor, np.int64(size)
    return elementwise(k.xp, _text(factor.dtype.name), "scale_states", real, size, given)


def constrain_orthonormal(k: KernelArgs) -> Call:
    xp, state = k.xp, k.state
    w = k["w_out"] if k["w"].shape[0] <= k["w"].shape[1] else k["w_out"].T
    gram, change = k.scratch((len(w), len(w)), w.dtype), k.scratch(w.shape, w.dtype)
    speed = k.scratch((1,), w.dtype)
    given = gram, k.get("wanted"), speed, np.int64(len(w))
    numbers = np.float64(k.attrs["scale"]), np.float64(UPDATE_SPEED)
    move = in_order(
        multiply(xp, w, w.T, gram),
        by_blocks(xp, _text(), "orthonormal_speed", w.dtype, 1, (*given, *numbers)),
        multiply(xp, gram, w, change),
        partial(xp.multiply, change, speed, change),
        partial(xp.add, w, change, w),
    )
    ranks, probability = ranks_of(k), k.attrs["probability"]

    def step() -> None:
        drawn = np.array([state.host_generator.random()])
        ranks().broadcast(drawn)
        if drawn[0] < probability:
            move()

    return in_order(copying(xp, k["w"], k["w_out"]), step)
