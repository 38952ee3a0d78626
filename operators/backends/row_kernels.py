"""Softmax, cross entropy, normalization, means and filling by C functions (library "native").

Of small arrays they save less work than calls from Python: they stand in one list with their
neighbors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...framework.fusion import team
from ...framework.fusion.compiled import native
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Kernel, lookup
from ...framework.runtime.plans.memory import panel_memory
from ..loss.class_targets import bind_targets, clearing, reshaped
from ..loss.cross_entropy import softmax_cross_entropy
from ..loss.labels import label_numbers, refuse_labels
from ..math.norm import layer_norm, rms_norm
from ..math.reduction import mean
from ..math.softmax import log_softmax, softmax
from ..tensor.fill import fill_constant, fill_like
from . import rows

_NORM = 40
"""Work of an element that is normalized, in the units of codegen.py."""
_PULL = 20
"""The same of a gradient of a cross entropy."""
_LARGE = 1 << 18
"""Bytes from which threads share the filling of an array."""
_BLOCKS, _TOGETHER = 8, 256
"""Blocks of rows whose sums threads share, at least, and the rows of a block."""
_FEW = 1 << 14
"""Elements up to which one thread takes their mean, or fills an array, in a microsecond or two."""


def _last_axis(k: KernelArgs, slot: str) -> dict[str, int] | None:
    """Rows and columns of an array whose last axis is the operator's; None for another axis."""
    shape = k[slot].shape
    if not shape or k.attrs["axis"] % len(shape) != len(shape) - 1 or not prod(shape):
        return None
    return {"rows": prod(shape[:-1]), "columns": shape[-1]}


def _softmax(logarithm: bool) -> Kernel:
    def kernel(k: KernelArgs) -> Call | None:
        x = k["x"]
        out = k["out"]
        sizes = _last_axis(k, "x")
        if sizes is None or not rows.suits(x.dtype, x, out):
            return None
        fields = {"x": x, "out": out, "logarithm": logarithm, **sizes}
        return rows.call(rows.task("softmax", x.dtype, rows.EXP * x.size, **fields))

    return kernel


def _softmax_grad(logarithm: bool) -> Kernel:
    def kernel(k: KernelArgs) -> Call | None:
        out = k["out"]
        grad = k["out_grad"]
        x_grad = k["x_grad"]
        sizes = _last_axis(k, "out")
        if sizes is None or not rows.suits(out.dtype, out, grad, x_grad):
            return None
        fields = {"out": out, "out_grad": grad, "x_grad": x_grad, "logarithm": logarithm, **sizes}
        return rows.call(rows.task("softmax_grad", out.dtype, _NORM * out.size, **fields))

    return kernel


def _trailing(k: KernelArgs) -> dict[str, int]:
    """Rows and columns of what is normalized over its last axes."""
    shape = k.shape("x")
    begin = k.attrs["begin_norm_axis"] % len(shape)
    return {"rows": prod(shape[:begin]), "columns": prod(shape[begin:])}


def _norm(stats: tuple[str, ...]) -> Kernel:
    """layer_norm, with a mean, or rms_norm, without."""

    def kernel(k: KernelArgs) -> Call | None:
        x = k["x"]
        out = k["out"]
        scale = k.get("scale")
        centered = len(stats) > 1
        bias = k.get("bias") if centered else None
        outs = [k.get(slot) for slot in stats]
        if not x.size or not rows.suits(x.dtype, x, out, scale, bias, *outs):
            return None
        mean = outs[0] if centered else None
        fields = {"x": x, "out": out, "scale": scale, "bias": bias, **_trailing(k)}
        fields |= {"mean": mean, "inverse": outs[-1]}
        fields |= {"epsilon": k.attrs["epsilon"], "centered": centered}
        return rows.call(rows.task("norm", x.dtype, _NORM * x.size, **fields))

    return kernel


def _norm_grad(stats: tuple[str, ...]) -> Kernel:
    def kernel(k: KernelArgs) -> Call | None:
        x = k["x"]
        grad = k["out_grad"]
        x_grad = k.get("x_grad")
        scale = k.get("scale")
        centered = len(stats) > 1
        scale_grad = k.get("scale_grad")
        bias_grad = k.get("bias_grad") if centered else None
        mean = k[stats[0]] if centered else None
        inverse = k[stats[-1]]
        arrays = x, grad, x_grad, scale, scale_grad, bias_grad, mean, inverse
        if not x.size or not rows.suits(x.dtype, *arrays):
            return None
        fields = {"x": x, "out_grad": grad, "mean": mean, "inverse": inverse, **_trailing(k)}
        fields |= {"x_grad": x_grad, "scale": scale, "blocks": fields["rows"]}
        if scale_grad is None and bias_grad is None:
            return rows.call(rows.task("norm_grad", x.dtype, _NORM * x.size, **fields))
        count, columns = fields["rows"], fields["columns"]
        blocks = min(count, max(_BLOCKS, count // _TOGETHER))
        sums = panel_memory(blocks * 2 * columns * x.itemsize).view(x.dtype)
        sums = sums.reshape(blocks, 2, columns)
        fields |= {"blocks": blocks, "sums": sums}
        pulled = rows.task("norm_grad", x.dtype, _NORM * x.size, **fields)
        return rows.call(pulled, rows.added(sums, (bias_grad, scale_grad)))

    return kernel


def _cross_entropy(k: KernelArgs) -> Call | None:
    return _by_class(k, "cross_entropy", ("x", "out", "softmax"), "out", rows.EXP)


def _cross_entropy_grad(k: KernelArgs) -> Call | None:
    slots = "softmax", "out_grad", "x_grad"
    return _by_class(k, "cross_entropy_grad", slots, "x_grad", _PULL)


def _by_class(
    k: KernelArgs, name: str, slots: tuple[str, str, str], cleared: str, work: int
) -> Call | None:
    """A function of samples with weights of the classes, or with class numbers; of these it marks
    those that are none.

    Args:
        slots: of the arrays that it takes beside the labels. cleared: the slot of those which is 0
            for ignored samples. work: of an element.
    """
    values = {slot: k.get(slot) for slot in slots}
    first, *others = values.values()
    if not first.size or not rows.suits(first.dtype, first, *others):
        return None
    classes = first.shape[-1]
    samples = first.size // classes
    if k.attrs["soft_label"] or reshaped(k):
        weights, load, ignored = bind_targets(k, samples, classes)
        if not rows.suits(first.dtype, weights):
            return None
        fields = values | {"samples": samples, "classes": classes, "weights": weights, "ignored": 0}
        weighed = rows.call(rows.task(name, first.dtype, work * first.size, **fields))
        clear = clearing(k, k[cleared].reshape(samples, -1), ignored)
        return team.in_order(*load, weighed, clear)
    labels, load = label_numbers(k)
    if not rows.suits(np.dtype("int64"), labels):
        return None
    ignored = k.attrs["ignore_index"]
    values |= {"samples": samples, "classes": classes, "labels": labels, "ignored": ignored}
    block = native.bind("rows", first.dtype, name, **values)
    complain = partial(refuse_labels, k.op, classes, ignored)
    check = team.Marked(block.address_of("bad"), complain, k.arrays)
    task = replace(team.block_task(work * first.size, block), check=check)
    return team.in_order(*load, rows.call(task))


def _mean(k: KernelArgs) -> Call | None:
    x, out = k["x"], k["out"]
    # A larger mean is shared between threads by the reduction's own kernel.
    if not 0 < x.size <= _FEW or not rows.suits(x.dtype, x, out):
        return None
    return rows.call(rows.mean_task(x, out, x.size))


def _mean_grad(k: KernelArgs) -> Call | None:
    return _filled(k["x_grad"], 1.0, k["out_grad"], k["x_grad"].size)


def _fill(k: KernelArgs) -> Call | None:
    out = k["out"]
    if out.nbytes < _LARGE:
        return _filled(out, k.attrs["value"], None)
    task = team.fill_task(out, k.attrs["value"])
    return None if task is None else rows.call(task)


def _filled(out: Any, factor: float, other: Any, divisor: int = 1) -> Call | None:
    """A call that makes all elements of an array factor / divisor, times the number in `other`."""
    if not out.size or out.dtype.name not in native.C_TYPES:
        return None
    if not rows.suits(out.dtype, out, other):
        return None
    fields = {"size": out.size, "out": out, "factor": factor, "divisor": divisor, "other": other}
    return rows.call(rows.task("fill", out.dtype, out.nbytes, **fields))


_LAYER = ("mean", "inv_std")
_RMS = ("inv_rms",)
for _entry, _bind, _bind_grad in (
    (softmax, _softmax(False), _softmax_grad(False)),
    (log_softmax, _softmax(True), _softmax_grad(True)),
    (layer_norm, _norm(_LAYER), _norm_grad(_LAYER)),
    (rms_norm, _norm(_RMS), _norm_grad(_RMS)),
):
    for _one, _kernel in ((_entry, _bind), (lookup(f"{_entry.type}_grad"), _bind_grad)):
        _one.kernel(
            rows.where_compiled(_kernel),
            device="cpu",
            dtypes=(np.float32, np.float64),
            library="native",
        )
for _one, _kernel in (
    (softmax_cross_entropy, _cross_entropy),
    (lookup("softmax_cross_entropy_grad"), _cross_entropy_grad),
    (mean, _mean),
    (lookup("mean_grad"), _mean_grad),
):
    _one.kernel(
        rows.where_compiled(_kernel),
        device="cpu",
        dtypes=(np.float32, np.float64),
        library="native",
    )
for _entry in (fill_constant, fill_like):
    _entry.kernel(rows.where_compiled(_fill), device="cpu", library="native")
