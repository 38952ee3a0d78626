"""Which input rows each output row of a component depends on, for whole arrays of rows.

A simple component reads the row of the same index. The others read a fixed number of candidate
rows, some of which may be missing; a table by component type says which. (Kaldi: GetInputIndexes
and IsComputable of every non-simple component.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Column = tuple[Any, Any]  # t and x of a candidate row: integers or arrays


@dataclass(frozen=True)
class Reads:
    """The candidate rows of a component.

    Attributes:
        columns: t and x of the requested rows -> t and x of each candidate.
        required: which candidates must be there; None: at least one of them.
        allowed: which requested rows can be computed at all; None: all.
        offsets: the t offsets of the candidates where these are all there is to `columns`.
    """

    columns: Callable[[Any, Any], list[Column]]
    required: tuple[bool, ...] | None
    allowed: Callable[[Any], Any] | None = None
    offsets: tuple[int, ...] | None = None

    def combine(self, present: Sequence[Any], allowed: Any, every: Any) -> tuple[Any, list[Any]]:
        """(computable, for each candidate: used), from which candidates are there.

        Works on boolean arrays, or on integers whose bits are rows.

        Args:
            allowed: for which rows `Reads.allowed` holds.
            every: what stands for all rows: True among arrays, -1 among integers.
        """
        if self.required is None:
            ok: Any = every ^ every
            for mask in present:
                ok = mask | ok
        else:
            ok = every
            for mask, wanted in zip(present, self.required, strict=True):
                if wanted:
                    ok = mask & ok
        ok = allowed & ok
        return ok, [mask & ok for mask in present]


SAME = Reads(lambda t, x: [(t, x)], (True,), offsets=(0,))
_NOTHING = Reads(lambda t, x: [], (), offsets=())


def _offsets(offsets: Sequence[int], required: Sequence[bool]) -> Reads:
    steps = tuple(int(offset) for offset in offsets)

    def columns(t: Any, x: Any) -> list[Column]:
        return [(t + step, x) for step in steps]

    return Reads(columns, tuple(bool(r) for r in required), offsets=steps)


def _tdnn(c: Any) -> Reads:
    return _offsets(c.time_offsets, [True] * len(c.time_offsets))


def _convolution(c: Any) -> Reads:
    required = set(c.required_time_offsets)
    return _offsets(c.all_time_offsets, [offset in required for offset in c.all_time_offsets])


def _attention(c: Any) -> Reads:
    numbers = range(-c.num_left_inputs, c.num_right_inputs + 1)
    left, right = c.num_left_inputs_required, c.num_right_inputs_required
    return _offsets([i * c.time_stride for i in numbers], [-left <= i <= right for i in numbers])


def _statistics_extraction(c: Any) -> Reads:
    period = c.output_period

    def columns(t: Any, x: Any) -> list[Column]:
        start = t - t % period
        return [(start + step, x) for step in range(0, period, c.input_period)]

    return Reads(columns, None)


def _statistics_pooling(c: Any) -> Reads:
    steps = range(-c.left_context, c.right_context + 1, c.input_period)

    def columns(t: Any, x: Any) -> list[Column]:
        return [(t + step, x) for step in steps]

    def allowed(t: Any) -> Any:
        return t % c.input_period == 0

    return Reads(columns, None, allowed)


def _distribute(c: Any) -> Reads:
    blocks = c.input_dim // c.output_dim
    return Reads(lambda t, x: [(t, x // blocks)], (True,))


_READS: dict[str, Callable[[Any], Reads]] = {
    "TdnnComponent": _tdnn,
    "TimeHeightConvolutionComponent": _convolution,
    "RestrictedAttentionComponent": _attention,
    "StatisticsExtractionComponent": _statistics_extraction,
    "StatisticsPoolingComponent": _statistics_pooling,
    "DistributeComponent": _distribute,
    "ConstantComponent": lambda c: _NOTHING,
    "DropoutMaskComponent": lambda c: _NOTHING,
}


def component_reads(component: Any) -> Reads:
    """The candidate rows of a component."""
    make = _READS.get(component.type)
    return SAME if make is None else make(component)
