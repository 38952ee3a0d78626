"""Batch norm in two readings of its input, and its gradient in two, shared between threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.ir.kernel_args import Call, KernelArgs
from .images import Work, lanes, steps, suited, threads

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


def _sizes(array: Any) -> tuple[int, int, int]:
    """Images, channels, values of a plane."""
    batch, channels = array.shape[:2]
    return batch, channels, array.size // (batch * channels)


def batch_norm(k: KernelArgs) -> Call | None:
    """Forward; None where the arrays do not suit."""
    x, out = k["x"], k["out"]
    if not suited(x, out) or not _small_suit(k, x.dtype):
        return None
    side, (batch, _, size) = _layout(x, out), _sizes(x)
    if side is None:
        return None
    learns = k.train and not k.attrs["use_global_stats"]
    if learns and batch * size < 2:
        return None  # the plain kernel says why
    work = Work(x.dtype)
    moments = _moments(k, work, side) if learns else 0
    _apply(k, work, side, _settled(k, work, moments))
    return work.call()


def _moments(k: KernelArgs, work: Work, side: int) -> int:
    """Has mean and squares of each channel of x taken; their address."""
    x, parts = k["x"], threads()
    batch, channels, size = _sizes(x)
    # One line for each thread, which adds up its own images in double; `settle` joins them.
    moments = work.keep(k.scratch((parts, channels, 3), np.float64))
    words = (parts, side, batch, channels, size, work.keep(x), steps(x)[0], moments)
    work.add("image_norm", "channel_moments", words, x.size * 2 * _WORK)
    return moments


def _apply(k: KernelArgs, work: Work, side: int, settled: tuple[int, int, int]) -> None:
    """Has out = (x - mean) * factor + bias computed.

    Args:
        settled: addresses of mean, factor and bias of the channels.
    """
    x, out = k["x"], k["out"]
    work.add("image_norm", "apply", (side, *_sizes(x), work.keep(x), steps(x)[0], work.keep(out),
                       steps(out)[0], *settled), x.size * _WORK)  # fmt: skip


def blended_batch_norm(k: KernelArgs) -> Call | None:
    """Forward with CNTK's time constants, see `cntk.batch_norm`; None where arrays do not suit."""
    x, out, dtype = k["x"], k["out"], k["x"].dtype
    slots = "scale", "bias", "mean", "variance", "mean_out", "variance_out"
    small = [k[slot] for slot in slots]
    kept = [k.get(slot) for slot in ("used_mean", "used_scale")]
    doubles = [k[slot] for slot in ("seen", "seen_out", "time", "blend")]
    fit = suited(x, out, *small, *kept) and suited(np.empty(1), *doubles)
    given = (*small, *doubles, *(array for array in kept if array is not None))
    side = _layout(x, out) if fit and all(one.flags.c_contiguous for one in given) else None
    if side is None:
        return None
    work, channels = Work(dtype), x.shape[1]
    weights, own = work.keep(k.scratch((2,), np.float64)), k.get("own_weight")
    moments = _moments(k, work, side) if k.train else 0
    work.add(
        "image_norm",
        "weights",
        (
            len(x) if k.train else 0,
            *(work.keep(one) for one in doubles),
            weights,
            0 if own is None else work.keep(own),
        ),
    )
    used, inverse = (
        work.keep(k.scratch((channels,), dtype) if array is None else array) for array in kept
    )
    factor = work.keep(k.scratch((channels,), dtype))
    scale, bias, *running = (work.keep(array) for array in small)
    epsilon = work.keep(np.array([k.attrs["epsilon"]], np.float64))
    work.add(
        "image_norm",
        "settle_blended",
        (threads(), channels, moments, *running, weights, epsilon, used, inverse, scale, factor),
    )
    _apply(k, work, side, (used, factor, bias))
    return work.call()


def _small_suit(k: KernelArgs, dtype: np.dtype) -> bool:
    """Whether the C functions take all arrays [C] of a forward operator."""
    given = (k.get(slot) for slot in (*_GIVEN, *_AFTER, *_KEPT))
    small = [array for array in given if array is not None]
    fit = all(array.dtype == dtype and array.flags.c_contiguous for array in small)
    return fit and suited(*small)


def _settled(k: KernelArgs, work: Work, moments: int) -> tuple[int, int, int]:
    """Has mean and deviation settled; addresses of mean, factor and bias of the channels.

    Args:
        moments: the address of those of the batch; 0: the running values serve.
    """
    scale, bias, mean, variance = (work.keep(k[slot]) for slot in _GIVEN)
    (channels,), dtype = k["scale"].shape, k["scale"].dtype
    kept = (k.get(slot) for slot in _KEPT)
    used, inverse = (
        work.keep(k.scratch((channels,), dtype) if array is None else array) for array in kept
    )
    factor = work.keep(k.scratch((channels,), dtype))
    address = work.keep(np.array([k.attrs["momentum"], k.attrs["epsilon"]], np.float64))
    after = [k.get(slot) for slot in _AFTER]
    results = [0 if array is None else work.keep(array) for array in after]
    parts = threads()
    work.add(
        "image_norm",
        "settle",
        (
            parts,
            channels,
            moments,
            mean,
            variance,
            *results,
            address,
            address + 8,
            used,
            inverse,
            scale,
            factor,
        ),
    )
    return used, factor, bias


def is_constant(k: KernelArgs, dtype: np.dtype) -> bool:
    """Whether it is a factor and a term of each channel, in arrays that suit."""
    learns = k.train and not k.attrs["use_global_stats"]
    return not learns and _small_suit(k, dtype)


def folded(k: KernelArgs, work: Work) -> Callable[[slice, Any], tuple[int, int]]:
    """Of a batch norm that is constant, a function: channels and the bias before it (or None) ->
    addresses of their factors and terms, with zeros after them to whole vectors."""
    used, factor, bias = _settled(k, work, 0)
    dtype = k["scale"].dtype

    def fold(own: slice, before: Any) -> tuple[int, int]:
        count, begin = own.stop - own.start, own.start * dtype.itemsize
        size = lanes(dtype)
        room = -(-count // size) * size
        factors, terms = (work.keep(k.scratch((room,), dtype)) for _ in range(2))
        bias_of = (0, 0) if before is None else (work.keep(before), *steps(before))
        given = used + begin, factor + begin, bias + begin
        work.add("image_norm", "fold", (room, count, *given, *bias_of, factors, terms))
        return factors, terms

    return fold


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
    batch, channels, size = _sizes(x)
    work, parts = Work(x.dtype), threads()
    sums = work.keep(k.scratch((parts, channels, 2), np.float64))
    factors = work.keep(k.scratch((3, channels), x.dtype))
    data = work.keep(x), steps(x)[0], work.keep(grad), steps(grad)[0], work.keep(mean)
    work.add(
        "image_norm",
        "slopes",
        (parts, side, batch, channels, size, *data, sums),
        x.size * 2 * _WORK,
    )
    targets = [0 if a is None else work.keep(a) for a in (scale_grad, bias_grad)]
    work.add(
        "image_norm",
        "factors",
        (
            parts,
            channels,
            sums,
            batch * size if learns else 0,
            work.keep(inverse),
            work.keep(scale),
            *targets,
            factors,
            0 if follows is None else work.keep(follows),
        ),
    )
    if x_grad is not None:
        words = (side, batch, channels, size, *data, factors, work.keep(x_grad), steps(x_grad)[0])
        work.add("image_norm", "slope_of", words, x.size * 2 * _WORK)
    return work.call()
