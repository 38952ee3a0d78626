"""Softmax, cross entropy and layer normalization in a kernel each way, in CUDA (library "cuda").

A block goes over a row; CuPy would start a kernel for each of a handful of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....framework.base.sizes.shape import count
from ....framework.fusion.cuda.device_kernels import TILE, by_blocks, cuda_text, elementwise, takes
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import lookup
from ...loss.class_targets import label_weight, reshaped
from ...loss.cross_entropy import softmax_cross_entropy
from ...loss.labels import bad_label, label_numbers
from ...math.norm import layer_norm
from ...math.softmax import log_softmax, softmax


def _text() -> str:
    return cuda_text("labels", "rows")


def _fits(k: KernelArgs, *slots: str) -> bool:
    """Whether labels are class numbers, and kernels take the arrays of slots; the first has some
    element."""
    plain = not (k.attrs["soft_label"] or reshaped(k)) and k[slots[0]].size > 0
    return plain and takes(*(k.get(slot) for slot in slots))


def _cross_entropy(k: KernelArgs) -> Call | None:
    x, out = k["x"], k["out"]
    if not _fits(k, "x", "out", "softmax") or x.dtype != out.dtype:
        return None
    classes = x.shape[-1]
    labels, load = label_numbers(k)
    note = k.note("label", bad_label(k, classes))
    numbers = np.int64(classes), np.int64(k.attrs["ignore_index"])
    given = x, labels, out, k.get("softmax"), note, *numbers
    call = by_blocks(k.xp, _text(), "cross_entropy", x.dtype, x.size // classes, given)
    return in_order(*load, call)


def _cross_entropy_grad(k: KernelArgs) -> Call | None:
    if not _fits(k, "softmax", "out_grad", "x_grad"):
        return None
    x_grad = k["x_grad"]
    labels, load = label_numbers(k)
    numbers = (np.int64(n) for n in (x_grad.size, x_grad.shape[-1], k.attrs["ignore_index"]))
    given = k["softmax"], labels, k["out_grad"], x_grad, *numbers
    call = elementwise(k.xp, _text(), "cross_entropy_grad", x_grad.dtype, x_grad.size, given)
    return in_order(*load, call)


def _label_weight(k: KernelArgs) -> Call | None:
    out, weight, classes = k["out"], k.get("weight"), k.shape("x")[-1]
    if not out.size or not classes or not takes(out, weight):
        return None
    if weight is not None and weight.dtype != out.dtype:
        return None
    labels, load = label_numbers(k)
    note = k.note("label", bad_label(k, classes))
    numbers = np.int64(out.size), np.int64(classes), np.int64(k.attrs["ignore_index"])
    given = labels, weight, out, note, *numbers
    call = elementwise(k.xp, _text(), "label_weight", out.dtype, out.size, given)
    return in_order(*load, call)


def _by_rows(name: str, *slots: str) -> Callable[[KernelArgs], Call | None]:
    """A kernel of some slots, whose elements compete along the last axis."""

    def bind(k: KernelArgs) -> Call | None:
        arrays = [k[slot] for slot in slots]
        shape = arrays[0].shape
        last = bool(shape) and k.attrs["axis"] % len(shape) == len(shape) - 1
        if not last or not arrays[0].size or not takes(*arrays):
            return None
        return _over_rows(k, name, arrays, shape[-1])

    return bind


def _over_rows(k: KernelArgs, name: str, arrays: Sequence[Any], columns: int, *rest: Any) -> Call:
    given = *arrays, np.int64(columns), *rest
    first = arrays[0]
    return by_blocks(k.xp, _text(), name, first.dtype, first.size // columns, given)


def masked_softmax(k: KernelArgs, x: Any) -> Call:
    """Softmax in place, of what is contiguous; a row of minus infinities becomes zeros."""
    return _over_rows(k, "masked_softmax", (x, x), x.shape[-1])


def through_softmax(k: KernelArgs, out: Any, grad: Any, pull: Any) -> Call:
    """From the gradient of attention's weights, in place, to the gradient of its products."""
    return _over_rows(k, "softmax_grad", (k["weights"], pull, pull), pull.shape[-1])


def _layer_norm(k: KernelArgs) -> Call | None:
    slots = ("x", "scale", "bias", "out", "mean", "inv_std")
    arrays = [k.get(slot) for slot in slots]
    if not arrays[0].size or not takes(*arrays):
        return None
    return _over_rows(k, "layer_norm", arrays, _normalized(k), np.float64(k.attrs["epsilon"]))


def _layer_norm_grad(k: KernelArgs) -> Call | None:
    xp, (x, mean, inverse, grad) = k.xp, (k[slot] for slot in ("x", "mean", "inv_std", "out_grad"))
    x_grad, scale, scale_grad, bias_grad = (
        k.get(slot) for slot in ("x_grad", "scale", "scale_grad", "bias_grad")
    )
    if not x.size or not takes(x, mean, inverse, grad, x_grad, scale, scale_grad, bias_grad):
        return None
    columns = _normalized(k)
    calls = []
    if x_grad is not None:
        arrays = x, scale, mean, inverse, grad, x_grad
        calls.append(_over_rows(k, "layer_norm_grad", arrays, columns))
    if scale_grad is not None or bias_grad is not None:
        sizes = np.int64(x.size // columns), np.int64(columns)
        given = x, mean, inverse, grad, scale_grad, bias_grad, *sizes
        text, blocks = cuda_text("columns"), -(-columns // TILE)
        name = "layer_norm_parameters_grad"
        calls.append(by_blocks(xp, text, name, x.dtype, blocks, given))
    return in_order(*calls)


def _normalized(k: KernelArgs) -> int:
    """How many elements of x are normalized together."""
    shape = k.shape("x")
    return count(shape[k.attrs["begin_norm_axis"] % len(shape) :])


for _entry, _kernel in (
    (softmax, _by_rows("softmax", "x", "out")),
    (lookup("softmax_grad"), _by_rows("softmax_grad", "out", "out_grad", "x_grad")),
    (log_softmax, _by_rows("log_softmax", "x", "out")),
    (lookup("log_softmax_grad"), _by_rows("log_softmax_grad", "out", "out_grad", "x_grad")),
    (layer_norm, _layer_norm),
    (lookup("layer_norm_grad"), _layer_norm_grad),
    (label_weight, _label_weight),
    (softmax_cross_entropy, _cross_entropy),
    (lookup("softmax_cross_entropy_grad"), _cross_entropy_grad),
):
    _entry.kernel(_kernel, device="gpu", dtypes=(np.float32, np.float64), library="cuda")
