"""The tail of a convolution: batch norm by running values, an activation, a maximum pooling or any
loop of elementwise operators.

Activations of one table are computed while results are in registers, the loop while they are in the
cache: of a convolution of few channels that is a third of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...framework.fusion import chains
from ...framework.fusion.compiled.arguments import Block, Several
from ...framework.fusion.scalars.codegen import FULL
from ...framework.ir.kernel_args import KernelArgs
from ..base.calls import is_read
from . import batch_norm
from .images import Work, lanes, pixel_step
from .pooling import windows, windows_part

_LIMITS, _HARD_SWISH = 1, 2
ACTIVATIONS: dict[str, tuple[int, float | str, float | str]] = {
    "relu": (_LIMITS, 0.0, math.inf),
    "relu6": (_LIMITS, 0.0, 6.0),
    "clip": (_LIMITS, "minimum", "maximum"),
    "hard_tanh": (_LIMITS, "minimum", "maximum"),
    "hard_swish": (_HARD_SWISH, 0.0, 6.0),
}
"""Their numbers in native/epilogue.h and their limits, or the attributes that hold these."""


_RELU = "choose", ("binary", "<", ("var", "v0"), ("num", 0.0)), ("num", 0.0), ("var", "v0")


def activation(work: Work, after: KernelArgs | None = None, *, relu: bool = False) -> Block:
    """The activation of an operator; None: nothing is done, or what `relu` does."""
    kind, *limits = ACTIVATIONS["relu"] if relu else (0, 0.0, 0.0)
    if after is not None:
        kind, *limits = ACTIVATIONS[after.op.type]
    low, high = (after.attrs[one] if after and isinstance(one, str) else one for one in limits)
    return work.bind("chains", "activation", kind=kind, low=low, high=high)


class Sum(NamedTuple):
    """What a loop adds to results, and whether `relu` follows."""

    other: Any
    relu: bool


class Tail:
    """The operators that follow within the call of a convolution.

    Attributes:
        norm: the batch norm, or None. activation: one of the table, or None.
        pool: the pooling, or None.
        shape: of the result of the convolution itself. out: what the last operator writes.
    """

    def __init__(self, k: KernelArgs) -> None:
        by_type = {after.op.type: after for after in k.tail}
        self.norm = by_type.pop("batch_norm", None)
        activations = [by_type.pop(one) for one in ACTIVATIONS if one in by_type]
        self.activation = activations[0] if activations else None
        self._has_one = len(activations) <= 1
        self.pool = next(iter(by_type.values()), None)
        self.shape = k.shape("out")
        self._epilogue = k.epilogue
        if k.epilogue is not None:
            self.out = k.epilogue.arrays[k.epilogue.out]
        else:
            self.out = k.tail[-1]["out"] if k.tail else k["out"]
        self._windows = self._winners = None
        if self.pool is not None:
            self._windows = windows(self.pool, self.shape)
            index = self.pool.get("index")
            self._winners = index if index is not None and is_read(self.pool, "index") else None
            # Winners of all groups lie in one index, which a group by itself cannot place.
            self._whole = self._winners is None or k.attrs["groups"] == 1

    def fits(self) -> bool:
        """Whether this library computes all of it."""
        if not self._has_one:
            return False
        if self.norm is not None and not batch_norm.is_constant(self.norm, self.out.dtype):
            return False
        if self._epilogue is not None and (self.pool is not None or not self._epilogue_fits()):
            return False
        return self.pool is None or (self._windows is not None and self._whole)

    def _epilogue_fits(self) -> bool:
        """Whether the loop can be computed pixel by pixel, or from the results alone."""
        end = self._epilogue
        assert end is not None, "there is one"
        if chains.program(end.loop) is None or self.out.shape != self.shape:
            return False
        full = [
            array
            for array, operand in zip(end.arrays, end.loop.operands, strict=True)
            if operand.kind == FULL and array is not None and array is not self.out
        ]
        # Where channels lie apart it is computed before they are turned.
        if self.out.shape[1] == 1 or self.out.strides[1] == self.out.itemsize:
            return pixel_step(self.out) > 0 and all(
                array.strides == self.out.strides for array in full
            )
        return not full

    def sum(self) -> Sum | None:
        """The loop over the results, where it is a sum with one array, and perhaps `relu`: that is
        computed in registers, with the bits that the loop has. None for others."""
        end = self._epilogue
        if end is None or self.activation is not None or self.pool is not None:
            return None
        loop = end.loop
        relu = loop.values[1:] == (_RELU,)
        if (len(loop.values) > 1 and not relu) or loop.stores != ((end.out, f"v{int(relu)}"),):
            return None
        others = [n for n in range(len(loop.operands)) if n not in (end.made, end.out)]
        if len(others) != 1 or loop.operands[others[0]].kind != FULL:
            return None
        both = ("var", f"x{end.made}"), ("var", f"x{others[0]}")
        if loop.values[0] not in (("binary", "+", *both), ("binary", "+", *both[::-1])):
            return None
        other = end.arrays[others[0]]
        whole = self.out.shape[1] % lanes(self.out.dtype) == 0
        alike = other.dtype == self.out.dtype and other.strides == self.out.strides
        beside = self.out.strides[1] == self.out.itemsize
        return Sum(other, relu) if whole and alike and beside else None

    def epilogue(self, work: Work, part: Callable[[Any], Any]) -> Several | None:
        """The loop over the results of a kernel; None without one.

        Args:
            part: the images of four axes of the group of channels at hand.
        """
        end = self._epilogue
        if end is None:
            return None
        chain = chains.program(end.loop)
        assert chain is not None, "it fits"
        given = []
        sizes = []
        for array, operand in zip(end.arrays, end.loop.operands, strict=True):
            whole = operand.kind == FULL
            given.append(part(self.out if array is None else array) if whole else array)
            sizes.append(given[-1].itemsize if whole else 0)
        distances = [
            pixel_step(array) if size else 0 for array, size in zip(given, sizes, strict=True)
        ]
        out = given[end.out]
        argument = chains.argument(chain, (0, 0), zip(given, distances, strict=True))
        block = work.bind(
            *("chains", "epilogue"),
            function=argument.item[0],
            chain=Several.of([argument]),
            **{"operands": len(sizes), "made": end.made, "out": end.out},
            sizes=np.array(sizes, np.int64),
            **{"plane": out.shape[2] * out.shape[3], "pixel": pixel_step(out)},
        )
        return Several.of([block])

    def parts(self, most: int, fewest: int) -> int:
        """Into how many parts, of rows of windows, an image is cut: `most`, or so many fewer that
        threads get equally many. Where windows overlap and parts compute rows twice, `fewest`.
        """
        assert self._windows is not None, "there is a pooling, and it fits"
        down = self._windows[0]
        rows = self.out.shape[2] if self.out.ndim > 3 else 1
        parts = min(most if down.kernel <= down.stride else fewest, most, rows)
        return parts - parts % fewest if parts > fewest else parts

    def pooling(self, work: Work, image: Any, out: Any) -> Several:
        """The pooling of one image."""
        assert self._windows is not None, "there is a pooling, and it fits"
        part = windows_part(work, self._windows, image, out)
        fields = {"windows": part, "x": image, "out": out, "winners": self._winners}
        return Several.of([work.bind("pooling", "pool", **fields)])
