"""Windows that slide over tensors of any rank, for convolutions and poolings.

A window's elements are given by a table: for each window the numbers of its elements in the
flattened sample, -1 for padding. Source: CNTK's `Math/ConvolveGeometry.h`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sequence import bincount
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...framework.ir.rows import rows_of

WINDOW = (
    AttrSpec("shape", "ints", "dimensions of the tensor, slowest first", minimum=1),
    AttrSpec("kernel", "ints", "dimensions of a window", minimum=1),
    AttrSpec("stride", "ints", "steps between windows", minimum=1),
    AttrSpec("lower", "ints", "elements of padding before the first"),
    AttrSpec("counts", "ints", "number of windows along each axis", minimum=1),
)


def table(attrs: dict[str, Any]) -> np.ndarray:
    """Numbers of elements [windows, elements of a window], int64; -1: padding."""
    shape = attrs["shape"]
    numbers = np.zeros((1, 1), np.int64)
    for size, kernel, stride, lower, count in zip(
        *(attrs[name] for name in ("shape", "kernel", "stride", "lower", "counts")), strict=True
    ):
        place = np.arange(count)[:, None] * stride - lower + np.arange(kernel)
        place[(place < 0) | (place >= size)] = -1
        windows, elements = numbers.shape
        both = numbers[:, None, :, None] * size + place[None, :, None, :]
        both[(numbers[:, None, :, None] < 0) | (place[None, :, None, :] < 0)] = -1
        numbers = both.reshape(windows * count, elements * kernel)
    assert len(shape) > 0
    return numbers


def _counts(attrs: dict[str, Any]) -> tuple[int, int, int]:
    """Elements of a tensor, windows, elements of a window."""
    size, windows, kernel = (int(np.prod(attrs[name])) for name in ("shape", "counts", "kernel"))
    return size, windows, kernel


class _Gather:
    """Elements of windows from tensors, and back, in calls that hold no temporary."""

    def __init__(self, k: KernelArgs) -> None:
        self.xp = k.xp
        index = table(k.attrs)
        self.index = k.xp.asarray(np.maximum(index, 0).reshape(-1))
        padding = np.flatnonzero(index.reshape(-1) < 0)
        self.padding = k.xp.asarray(padding) if len(padding) else None
        self.shape = index.shape
        numbers = index.reshape(-1)
        inside = np.flatnonzero(numbers >= 0)
        order = inside[np.argsort(numbers[inside], kind="stable")]
        size = int(np.prod(k.attrs["shape"]))
        times = bincount(numbers[inside], minlength=size)
        self._rounds = []
        begins = np.cumsum(times) - times
        for turn in range(int(times.max(initial=0))):
            some = np.flatnonzero(times > turn)
            self._rounds.append((k.xp.asarray(some), k.xp.asarray(order[begins[some] + turn])))

    def take(self, x: Any, out: Any, fill: float) -> None:
        """out [N, windows * elements] from x [N, size]."""
        self.xp.take(x, self.index, 1, out, **self._mode())
        if self.padding is not None:
            out[:, self.padding] = fill

    def _mode(self) -> dict[str, str]:
        return {"mode": "clip"} if self.xp is np else {}

    def add(self, x: Any, out: Any) -> None:
        """out [N, size]: the sum of the elements of x [N, windows * elements] for each place."""
        out.fill(0)
        for places, elements in self._rounds:
            out[:, places] += x[:, elements]


unfold = operator(
    "cntk.unfold",
    doc="The elements of all windows of each sample: [N, size] -> [N, windows, elements].",
    inputs=[Slot("x", "tensors, flattened, [N, size]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, windows, elements]", not_in_gradient=True)],
    attrs=[*WINDOW, AttrSpec("fill", "float", "value of the padding", 0.0)],
    source="CNTK: Source/Math/ConvolveGeometry.h",
    rows=rows_of("x"),
)


@unfold.shape_rule
def unfold_shape(s: ShapeArgs) -> None:
    size, windows, elements = _counts(s.attrs)
    rows, width = s.rank("x", 2)
    s.same("columns of x and elements of shape", width, size)
    s.set("out", ((rows, windows, elements), s.dtype("x")))


@unfold.kernel
def unfold_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    if not out.size:
        return nothing
    flat = out.reshape(len(out), -1)
    return partial(_Gather(k).take, k["x"], flat, k.attrs["fill"])


@unfold.backward("x")
def unfold_grad_kernel(k: KernelArgs) -> Call:
    grad = k["out_grad"]
    if not grad.size:
        return nothing
    return partial(_Gather(k).add, grad.reshape(len(grad), -1), k["x_grad"])


fold = operator(
    "cntk.fold",
    doc=(
        "The transpose of `cntk.unfold`: elements of windows added up where they lie, [N, windows,"
        " elements] -> [N, size]; sums in the padding are dropped."
    ),
    inputs=[Slot("x", "[N, windows, elements]", not_in_gradient=True)],
    outputs=[Slot("out", "[N, size]", not_in_gradient=True)],
    attrs=WINDOW,
    source="CNTK: Source/Math/ConvolveGeometry.h",
    rows=rows_of("x"),
)


@fold.shape_rule
def fold_shape(s: ShapeArgs) -> None:
    size, windows, elements = _counts(s.attrs)
    shape = s.same_shape("x and its windows", s.rank("x", 3), (-1, windows, elements))
    s.set("out", ((shape[0], size), s.dtype("x")))


@fold.kernel
def fold_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    if not x.size:
        return nothing
    return partial(_Gather(k).add, x.reshape(len(x), -1), k["out"])


@fold.backward("x")
def fold_grad_kernel(k: KernelArgs) -> Call:
    x_grad = k["x_grad"]
    if not x_grad.size:
        return nothing
    return partial(_Gather(k).take, k["out_grad"], x_grad.reshape(len(x_grad), -1), 0)


max_unpool = operator(
    "cntk.max_unpool",
    doc=(
        "Max pooling undone: each element of x is put where the largest element (the first of"
        " several) of its window of `pooled` stands; zeros elsewhere. Where windows have that place"
        " in common the last one counts, and it alone has a gradient."
    ),
    inputs=[
        Slot("x", "[N, windows]", not_in_gradient=True),
        Slot("pooled", "the input of the pooling, [N, size]", not_in_gradient=True),
    ],
    outputs=[
        Slot("out", "[N, size]", not_in_gradient=True),
        Slot("owner", "the window whose element is there, or -1, [N, size]", intermediate=True),
    ],
    attrs=WINDOW,
    source="CNTK: MaxUnpooling, Source/Math/CPUMatrix.cpp",
)


@max_unpool.shape_rule
def max_unpool_shape(s: ShapeArgs) -> None:
    size, windows, _ = _counts(s.attrs)
    x, pooled = s.rank("x", 2), s.rank("pooled", 2)
    s.same("rows of x and pooled", x[0], pooled[0])
    s.same("columns of x and windows", x[1], windows)
    s.same("columns of pooled and elements of shape", pooled[1], size)
    s.set("out", (s["pooled"], s.floats("x", "pooled")))
    s.set("owner", (s["pooled"], np.int64))


@max_unpool.kernel
def max_unpool_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    pooled = k["pooled"]
    out = k["out"]
    owner = k.get("owner")
    if not x.size:
        return nothing
    last = k.scratch(out.shape, np.int32)  # a GPU has an atomic maximum for these
    index = xp.asarray(table(k.attrs))
    numbers = xp.maximum(index, 0)
    outside = index < 0
    rows = xp.arange(len(x))[:, None]
    windows = xp.arange(len(index), dtype=np.int32)

    def run() -> None:
        elements = pooled[:, numbers]
        elements[:, outside] = -xp.inf
        places = numbers[windows, elements.argmax(2)]
        last.fill(-1)
        xp.maximum.at(last, (rows, places), windows)
        xp.multiply(x[rows, xp.maximum(last, 0)], last >= 0, out)
        if owner is not None:
            xp.copyto(owner, last)

    return run


@max_unpool.backward("x")
def max_unpool_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x_grad = k["x_grad"]
    grad = k["out_grad"]
    owner = k["owner"]

    def run() -> None:
        x_grad.fill(0)
        rows, places = xp.nonzero(owner >= 0)
        x_grad[rows, owner[rows, places]] = grad[rows, places]

    return run
