"""Softmax, cross entropy and normalization in one kernel each way, in CUDA (library "cuda").

A block goes over a row; CuPy would start a kernel for each of a handful of steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.fusion.device_kernels import by_blocks, elementwise, takes
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import lookup
from ..loss.class_targets import label_weight, reshaped
from ..loss.cross_entropy import softmax_cross_entropy
from ..loss.labels import COUNTS, bad_label, bind_labels

_TEXT = f"""{COUNTS}
KERNEL cross_entropy(const real *x, const int64 *labels, real *out, real *softmax, int64 *note,
                     int64 classes, int64 ignored) {{
  const int64 row = BLOCK_INDEX, label = labels[row];
  const real *z = x + row * classes;
  real top = -INFINITE, total = 0;
  LANES(j, classes) top = fmax(top, z[j]);
  top = block_max(top);
  LANES(j, classes) total += exp(z[j] - top);
  total = block_sum(total);
  const real picked = label >= 0 && label < classes ? z[label] - top : 0;
  if (softmax)
    LANES(j, classes) softmax[row * classes + j] = exp(z[j] - top) / total;
  if (FIRST_LANE) out[row] = counts(label, row, classes, ignored, note) ? log(total) - picked : 0;
}}

KERNEL label_weight(const int64 *labels, const real *weight, real *out, int64 *note, int64 size,
                    int64 classes, int64 ignored) {{
  EACH(i, size)
    out[i] = !counts(labels[i], i, classes, ignored, note) ? 0 : weight ? weight[labels[i]] : 1;
}}

KERNEL cross_entropy_grad(const real *softmax, const int64 *labels, const real *grad,
                          real *x_grad, int64 size, int64 classes, int64 ignored) {{
  EACH(i, size) {{
    const int64 row = i / classes, label = labels[row];
    const real one = label == i % classes;
    // Set, not multiplied: what stands in an ignored row may be no number.
    const int kept = label >= 0 && label < classes && label != ignored;
    x_grad[i] = kept ? (softmax[i] - one) * grad[row] : 0;
  }}
}}
"""


def _by_class(k: KernelArgs, *slots: str) -> tuple[Any, int, int] | None:
    """Labels that are class numbers, rows and classes; None where kernels do not fit."""
    first = k[slots[0]]
    if k.attrs["soft_label"] or reshaped(k) or not first.size:
        return None
    if not takes(*(k.get(slot) for slot in slots)):
        return None
    classes = first.shape[-1]
    return bind_labels(k, classes), first.size // classes, classes


def _cross_entropy(k: KernelArgs) -> Call | None:
    found = _by_class(k, "x", "out", "softmax")
    if found is None or k["x"].dtype != k["out"].dtype:
        return None
    labels, rows, classes = found
    note = k.note("label", bad_label(k, classes))
    numbers = np.int64(classes), np.int64(k.attrs["ignore_index"])
    given = k["x"], labels.values, k["out"], k.get("softmax"), note, *numbers
    call = by_blocks(k.xp, _TEXT, "cross_entropy", k["x"].dtype, rows, given)
    return in_order(*labels.load, call)


def _cross_entropy_grad(k: KernelArgs) -> Call | None:
    found = _by_class(k, "softmax", "out_grad", "x_grad")
    if found is None:
        return None
    labels, _, classes = found
    size = k["x_grad"].size
    numbers = np.int64(size), np.int64(classes), np.int64(k.attrs["ignore_index"])
    given = k["softmax"], labels.values, k["out_grad"], k["x_grad"], *numbers
    call = elementwise(k.xp, _TEXT, "cross_entropy_grad", k["x_grad"].dtype, size, given)
    return in_order(*labels.load, call)


def _label_weight(k: KernelArgs) -> Call | None:
    out, weight, classes = k["out"], k.get("weight"), k.shape("x")[-1]
    if not out.size or not classes or not takes(out, weight):
        return None
    if weight is not None and weight.dtype != out.dtype:
        return None
    labels = bind_labels(k, classes)
    note = k.note("label", bad_label(k, classes))
    numbers = np.int64(out.size), np.int64(classes), np.int64(k.attrs["ignore_index"])
    given = labels.values, weight, out, note, *numbers
    call = elementwise(k.xp, _TEXT, "label_weight", out.dtype, out.size, given)
    return in_order(*labels.load, call)


for _entry, _kernel in (
    (label_weight, _label_weight),
    (softmax_cross_entropy, _cross_entropy),
    (lookup("softmax_cross_entropy_grad"), _cross_entropy_grad),
):
    _entry.kernel(_kernel, device="gpu", dtypes=(np.float32, np.float64), library="cuda")
