"""Softmax, cross entropy and normalization in one kernel each way, in CUDA (library "cuda").

A block goes over a row; CuPy would start a kernel for each of a handful of steps.
"""

from __future__ import annotations

import numpy as np

from ...framework.fusion.device_kernels import by_blocks, elementwise, takes
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import lookup
from ..loss.class_targets import label_weight, reshaped
from ..loss.cross_entropy import softmax_cross_entropy
from ..loss.labels import COUNTS, bad_label, label_numbers

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
    call = by_blocks(k.xp, _TEXT, "cross_entropy", x.dtype, x.size // classes, given)
    return in_order(*load, call)


def _cross_entropy_grad(k: KernelArgs) -> Call | None:
    if not _fits(k, "softmax", "out_grad", "x_grad"):
        return None
    x_grad = k["x_grad"]
    labels, load = label_numbers(k)
    numbers = (np.int64(n) for n in (x_grad.size, x_grad.shape[-1], k.attrs["ignore_index"]))
    given = k["softmax"], labels, k["out_grad"], x_grad, *numbers
    call = elementwise(k.xp, _TEXT, "cross_entropy_grad", x_grad.dtype, x_grad.size, given)
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
    call = elementwise(k.xp, _TEXT, "label_weight", out.dtype, out.size, given)
    return in_order(*load, call)


for _entry, _kernel in (
    (label_weight, _label_weight),
    (softmax_cross_entropy, _cross_entropy),
    (lookup("softmax_cross_entropy_grad"), _cross_entropy_grad),
):
    _entry.kernel(_kernel, device="gpu", dtypes=(np.float32, np.float64), library="cuda")
