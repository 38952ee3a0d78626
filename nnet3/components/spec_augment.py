"""SpecAugment: random masks over stretches of columns and of time."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..index.indexes import IndexList
from .base.component import KeepsDim
from .base.fields import FLAG, FLOAT, INT, Field
from .base.keys import key, optional
from .base.lowering import OUT, Recipe, X, scale_by
from .base.summary import number
from .dropout import (
    MASK_DTYPE,
    RANDOM_IN_PLACE,
    RandomComponent,
    check_proportion,
    mask_operator,
)

_SOURCE = "Kaldi: nnet3/nnet-general-component.cc"


@dataclass(frozen=True)
class SequenceRows:
    """Rows ordered by sequence and time, int64 [N], and the number of rows of each sequence."""

    order: np.ndarray
    lengths: tuple[int, ...]


class SpecAugmentTimeMaskComponent(KeepsDim, RandomComponent):
    """Zeroes stretches of up to `time_mask_max_frames` rows, `zeroed_proportion` of all."""

    zeroed_proportion: float
    time_mask_max_frames: int

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<ZeroedProportion>", FLOAT, "zeroed_proportion"),
        Field("<TimeMaskMaxFrames>", INT, "time_mask_max_frames"),
        Field("<TestMode>", FLAG, "test_mode", default=False),
    )
    indexes_type = SequenceRows
    keys = (
        key("dim", int),
        *optional(float, zeroed_proportion=0.25),
        *optional(int, time_mask_max_frames=10),
    )
    flags = RANDOM_IN_PLACE

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.test_mode = False

    def check(self) -> None:
        super().check()
        check_proportion(self, "zeroed_proportion")
        self.demand(self.time_mask_max_frames > 1, "time-mask-max-frames must be above 1")

    def info(self) -> str:
        return (
            f"{self.type}, dim={self.dim}, zeroed-proportion={number(self.zeroed_proportion)}"
            f", time-mask-max-frames={self.time_mask_max_frames}"
        )

    def precompute(self, inputs: IndexList, outputs: IndexList) -> SequenceRows:
        n, t, _ = inputs.indexes.T
        lengths = np.unique(n, return_counts=True)[1]
        return SequenceRows(np.lexsort((t, n)), tuple(lengths.tolist()))

    def lower(self, recipe: Recipe) -> None:
        if self.test_mode or self.zeroed_proportion == 0:
            recipe.op("assign", OUT, x=X)
            return
        mask = recipe.temp()
        attrs = {
            "order": recipe.indexes.order,
            "lengths": list(recipe.indexes.lengths),
            "proportion": float(self.zeroed_proportion),
            "longest": int(self.time_mask_max_frames),
        }
        recipe.op("nnet3.time_mask", mask, attrs=attrs)
        scale_by(recipe, mask)


spec_augment_mask = mask_operator(
    "nnet3.spec_augment_mask",
    "SpecAugment over columns: each row of the mask [rows, columns] is 1 except in a range of"
    " columns (cyclic) of a random length up to proportion * columns; `regions` - 1 times"
    " two stretches of a random half are swapped, which splits the range.",
    AttrSpec("proportion", "float", "greatest part of the columns that is zeroed", 0.0, 0.0, 1.0),
    AttrSpec("regions", "int", "greatest number of zeroed ranges", 1, minimum=1),
)


@spec_augment_mask.kernel
def spec_augment_mask_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    state = k.state
    rows, columns = out.shape
    most = int(columns * k.attrs["proportion"] + 0.5)
    half = columns // 2
    quarter = columns // 2 // 2
    every, step = xp.arange(columns), xp.arange(quarter)
    every_row = xp.arange(rows)[:, None]

    def draw(limit: int) -> Any:
        return xp.floor(state.generator.random((rows, 1)) * limit).astype(every.dtype)

    def compute() -> None:
        length = draw(most + 1)
        start = draw(columns)
        mask = ((every - start) % columns >= length).astype(out.dtype)
        for _ in range(1, k.attrs["regions"]):
            start = draw(columns)
            left = (start + step) % columns
            right = (start + half - step) % columns
            source = xp.broadcast_to(every, mask.shape).copy()
            source[every_row, left] = right
            source[every_row, right] = left
            mask = xp.take_along_axis(mask, source, axis=1)
        xp.copyto(out, mask)

    return compute


time_mask = operator(
    "nnet3.time_mask",
    doc=(
        "SpecAugment over time: mask [N, 1] in which, along each sequence, stretches of ones and"
        " of zeros alternate; zeros last 1 to `longest` rows, ones 1 to longest * (1 - proportion)"
        " / proportion. A sequence begins with ones with probability `proportion`."
    ),
    outputs=[Slot("out", "[N, 1]")],
    attrs=[
        AttrSpec("order", "tensor", "[N] rows ordered by sequence and time"),
        AttrSpec("lengths", "ints", "rows of each sequence", minimum=1),
        AttrSpec("proportion", "float", "of zeros", 0.25, 0.0, 1.0),
        AttrSpec("longest", "int", "rows of the longest stretch of zeros", 10, minimum=1),
        MASK_DTYPE,
    ],
    source=_SOURCE,
    no_gradient="a random mask has no inputs",
    random=True,
)


@time_mask.shape_rule
def time_mask_shape(s: ShapeArgs) -> None:
    order, lengths, p = s.attrs["order"], s.attrs["lengths"], s.attrs["proportion"]
    if order.shape != (sum(lengths),):
        s.fail(f"order names {order.size} rows and lengths {sum(lengths)}")
    if not p or int(s.attrs["longest"] * (1 - p) / p) < 1:
        s.fail(f"a proportion of {p} leaves no stretches of zeros, or none of ones")
    s.set("out", ((len(order), 1), s.attrs["dtype"]))


@time_mask.kernel
def time_mask_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    state = k.state
    lengths = k.attrs["lengths"]
    order = xp.asarray(k.attrs["order"])
    p = k.attrs["proportion"]
    longest = k.attrs["longest"]
    limits = (int(longest * (1 - p) / p), longest)

    def sequence(rows: int) -> np.ndarray:
        """Zeros and ones of one sequence: enough stretches, cut to its length."""
        generator = state.host_generator
        sizes = np.floor(generator.random((rows, 2)) * limits).astype(np.int64) + 1
        if generator.random() >= p:
            sizes[0, 0] = 0
        ends = np.cumsum(sizes.reshape(-1))
        return 1 - np.searchsorted(ends, np.arange(rows), side="right") % 2

    def compute() -> None:
        values = np.concatenate([sequence(rows) for rows in lengths] or [np.zeros(0)])
        out[order, 0] = xp.asarray(values, out.dtype)

    return compute
