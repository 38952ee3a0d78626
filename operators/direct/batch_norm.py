"""Batch norm in two readings of its input, and its gradient in two, shared between threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.fusion.team import ParallelTask, aligned
from ...framework.ir.kernel_args import Call, KernelArgs
from .images import Work, lanes, suited, threads

_GIVEN = "scale", "bias", "mean", "variance"
_AFTER, _KEPT = ("mean_out", "variance_out"), ("saved_mean", "saved_inv_std")
_WORK = 4
"""Work of one element in one reading, beside a multiplication of a product."""


def _layout(*arrays: Any) -> int | None:
    """1 where all arrays are rows of channels, 0 where they are planes; None for any other."""
    shape = arrays[0].shape
    rows = [np.moveaxis(array, 1, -1).flags.c_contiguous for array in arrays]
    if all(rows):
        return 1
    planes = all(array.flags.c_contiguous for array in arrays)
    return 0 if planes and len(shape) > 2 else None


def _sizes(array: Any) -> dict[str, int]:
    """Images, channels, values of a plane."""
    batch, channels = array.shape[:2]
    return {"images": batch, "channels": channels, "size": array.size // (batch * channels)}


def batch_norm(k: KernelArgs) -> Call | None:
    """Forward; None where the arrays do not suit."""
    x, out = k["x"], k["out"]
    if not suited(x, out) or not _small_suit(k, x.dtype):
        return None
    side = _layout(x, out)
    if side is None:
        return None
    learns = k.train and not k.attrs["use_global_stats"]
    if learns and x.size // x.shape[1] < 2:
        return None  # the plain kernel says why
    work = Work(x.dtype)
    moments = _moments(k, work, side) if learns else None
    _apply(k, work, side, _settled(k, work, moments))
    return work.call()


def _moments(k: KernelArgs, work: Work, side: int) -> Any:
    """Mean and squares of each channel of x, which it has taken."""
    x = k["x"]
    parts = threads()
    # One line for each thread, which adds up its own images in double; `settle` joins them.
    moments = k.scratch((parts, x.shape[1], 3), np.float64)
    fields = {"parts": parts, "side": side, "x": x, "moments": moments, **_sizes(x)}
    work.add("image_norm", "channel_moments", x.size * 2 * _WORK, **fields)
    return moments


def _apply(k: KernelArgs, work: Work, side: int, settled: tuple[Any, Any, Any]) -> None:
    """Has out = (x - mean) * factor + bias computed.

    Args:
        settled: mean, factor and bias of the channels.
    """
    x = k["x"]
    fields = dict(zip(("mean", "factor", "bias"), settled, strict=True))
    fields |= {"side": side, "x": x, "out": k["out"], **_sizes(x)}
    work.add("image_norm", "apply", x.size * _WORK, **fields)


def blended_batch_norm(k: KernelArgs) -> Call | None:
    """Forward with CNTK's time constants, see `cntk.batch_norm`; None where arrays do not suit."""
    x = k["x"]
    out = k["out"]
    dtype = k["x"].dtype
    slots = "scale", "bias", "mean", "variance", "mean_out", "variance_out"
    small = [k[slot] for slot in slots]
    kept = [k.get(slot) for slot in ("used_mean", "used_scale")]
    doubles = [k[slot] for slot in ("seen", "seen_out", "time", "blend")]
    fit = suited(x, out, *small, *kept) and suited(np.empty(1), *doubles)
    given = (*small, *doubles, *(array for array in kept if array is not None))
    side = _layout(x, out) if fit and all(one.flags.c_contiguous for one in given) else None
    if side is None:
        return None
    work = Work(dtype)
    channels = x.shape[1]
    weights = k.scratch((2,), np.float64)
    moments = _moments(k, work, side) if k.train else None
    times = dict(zip(("seen", "seen_out", "time", "blend"), doubles, strict=True))
    times |= {"weights": weights, "own": k.get("own_weight")}
    work.add("image_norm", "weights", samples=len(x) if k.train else 0, **times)
    used, inverse = (k.scratch((channels,), dtype) if array is None else array for array in kept)
    factor = k.scratch((channels,), dtype)
    bias = k["bias"]
    fields = {slot: k[slot] for slot in slots if slot != "bias"}
    fields |= {"parts": threads(), "channels": channels, "moments": moments, "weights": weights}
    fields |= {"used": used, "inverse": inverse, "factor": factor, "epsilon": k.attrs["epsilon"]}
    work.add("image_norm", "settle_blended", **fields)
    _apply(k, work, side, (used, factor, bias))
    return work.call()


def _small_suit(k: KernelArgs, dtype: np.dtype) -> bool:
    """Whether the C functions take all arrays [C] of a forward operator."""
    given = (k.get(slot) for slot in (*_GIVEN, *_AFTER, *_KEPT))
    small = [array for array in given if array is not None]
    fit = all(array.dtype == dtype and array.flags.c_contiguous for array in small)
    return fit and suited(*small)


def _settled(
    k: KernelArgs, work: Work, moments: Any, memory: Callable[[Any, Any], Any] | None = None
) -> tuple[Any, Any, Any]:
    """Mean, factor and bias of the channels, which it has settled.

    Args:
        moments: of the batch; None: the running values serve.
        memory: makes an array of a shape and a dtype; None: scratch memory.
    """
    memory = memory or k.scratch
    (channels,), dtype = k["scale"].shape, k["scale"].dtype
    kept = (k.get(slot) for slot in _KEPT)
    used, inverse = (memory((channels,), dtype) if array is None else array for array in kept)
    factor = memory((channels,), dtype)
    fields = {slot: k[slot] for slot in _GIVEN if slot != "bias"}
    fields |= {slot: k.get(slot) for slot in _AFTER}
    fields |= {"parts": threads(), "channels": channels, "moments": moments}
    fields |= {"momentum": k.attrs["momentum"], "epsilon": k.attrs["epsilon"]}
    work.add("image_norm", "settle", used=used, inverse=inverse, factor=factor, **fields)
    return used, factor, k["bias"]


def is_constant(k: KernelArgs, dtype: np.dtype) -> bool:
    """Whether it is a factor and a term of each channel, in arrays that suit."""
    learns = k.train and not k.attrs["use_global_stats"]
    return not learns and _small_suit(k, dtype)


def folded(k: KernelArgs, work: Work, before: Any, groups: int) -> Any:
    """Factors and terms of a batch norm that is constant, of each group of channels, with zeros
    after them to whole vectors: [groups, 2, places].

    They stay from run to run where the frame knows when statistics and parameters change.

    Args:
        before: the bias that is added before it, or None.
    """
    read = [k[slot] for slot in _GIVEN]
    if before is not None:
        read.append(before)
    known: Any = getattr(k.frame, "kept", None)
    returns = any(k.get(slot) is not None for slot in (*_AFTER, *_KEPT))
    dtype = k["scale"].dtype
    size = lanes(dtype)
    shape = groups, 2, -(-(len(k["scale"]) // groups) // size) * size
    kept = None
    if known and not returns and all(map(known.holds, read)):
        how = "fold", groups, k.attrs["epsilon"]
        nbytes = math.prod(shape) * dtype.itemsize
        kept = known.get_of(read, how, nbytes, lambda: _folding(k, before, shape))
    if kept is not None:
        return kept
    ends = k.scratch(shape, dtype)
    _add_folds(k, work, before, ends)
    return ends


def _add_folds(k: KernelArgs, work: Work, before: Any, ends: Any, memory: Any = None) -> None:
    """Have the factors and terms of all groups computed; see `_settled` for `memory`."""
    settled = _settled(k, work, None, memory)
    groups, _, places = ends.shape
    channels = len(k["scale"]) // groups
    for group in range(groups):
        own = slice(group * channels, (group + 1) * channels)
        used, factor, bias = (array[own] for array in settled)
        fields = {"places": places, "channels": channels, "mean": used, "factor": factor}
        fields |= {"bias": bias, "before": None if before is None else before[own]}
        fields |= {"factors": ends[group, 0], "terms": ends[group, 1]}
        work.add("image_norm", "fold", **fields)


def _folding(k: KernelArgs, before: Any, shape: tuple[int, ...]) -> tuple[Any, ParallelTask]:
    """Memory of its own for factors and terms, and the task that fills it."""
    dtype = k["scale"].dtype
    work = Work(dtype)
    ends = aligned(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
    _add_folds(k, work, before, ends, np.empty)
    return ends, work.task()


def batch_norm_grad(k: KernelArgs) -> Call | None:
    """Gradients; None where the arrays do not suit."""
    learns = k.train and not k.attrs["use_global_stats"]
    return _gradients(k, k["saved_mean"], k["saved_inv_std"], learns)


def blended_batch_norm_grad(k: KernelArgs) -> Call | None:
    """Gradients of `blended_batch_norm`; None where the arrays do not suit."""
    if not suited(np.empty(1), k["own_weight"]):
        return None
    return _gradients(k, k["used_mean"], k["used_scale"], True, k["own_weight"])


def _gradients(
    k: KernelArgs, mean: Any, inverse: Any, learns: bool, follows: Any = None
) -> Call | None:
    """See `batch_norm_grad`.

    Args:
        mean, inverse: the statistics that were used. learns: whether they follow x.
        follows: float64 [1]: how far they do; None: all the way.
    """
    x, grad, scale = k["x"], k["out_grad"], k["scale"]
    x_grad, scale_grad, bias_grad = (k.get(f"{slot}_grad") for slot in ("x", "scale", "bias"))
    small = [a for a in (scale, mean, inverse, scale_grad, bias_grad) if a is not None]
    if not suited(x, grad, x_grad, *small) or not all(a.flags.c_contiguous for a in small):
        return None
    side = _layout(x, grad, *(() if x_grad is None else (x_grad,)))
    if side is None:
        return None
    work = Work(x.dtype)
    channels = x.shape[1]
    parts = threads()
    sums = k.scratch((parts, channels, 2), np.float64)
    factors = k.scratch((3, channels), x.dtype)
    given = {"side": side, "x": x, "grad": grad, "mean": mean, **_sizes(x)}
    work.add("image_norm", "slopes", x.size * 2 * _WORK, parts=parts, sums=sums, **given)
    fields = {"parts": parts, "channels": channels, "sums": sums, "follows": follows}
    fields |= {"count": x.size // channels if learns else 0, "inverse": inverse, "scale": scale}
    fields |= {"scale_grad": scale_grad, "bias_grad": bias_grad, "out": factors}
    work.add("image_norm", "factors", **fields)
    if x_grad is not None:
        amount = x.size * 2 * _WORK
        work.add("image_norm", "slope_of", amount, factors=factors, out=x_grad, **given)
    return work.call()
