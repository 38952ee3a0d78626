"""The tail of a convolution: batch norm by running values, an activation, a maximum pooling."""

from __future__ import annotations

from typing import Any

from ...framework.fusion.arguments import Several
from ...framework.ir.kernel_args import KernelArgs
from . import batch_norm
from .images import Work
from .pooling import is_read, windows, windows_part


class Tail:
    """The operators that follow within the call of a convolution.

    Attributes:
        norm: the batch norm, or None. relu: whether there is one. pool: the pooling, or None.
        shape: of the result of the convolution itself. out: what the last operator writes.
    """

    def __init__(self, k: KernelArgs) -> None:
        by_type = {after.op.type: after for after in k.tail}
        self.norm = by_type.pop("batch_norm", None)
        self.relu = by_type.pop("relu", None) is not None
        self.pool = next(iter(by_type.values()), None)
        self.shape = k.shape("out")
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
        if self.norm is not None and not batch_norm.is_constant(self.norm, self.out.dtype):
            return False
        return self.pool is None or (self._windows is not None and self._whole)

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
