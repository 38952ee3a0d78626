"""Operators `rows.*` over rows at times, whose number follows from the length of the input.

They describe what an nnet3 network does; those who write it for other frameworks have a form of
each. They have no kernels: nothing here runs them. Rows are [N, columns, rows].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.registry import AttrSpec, Slot, operator

_NO_GRADIENT: Final = "networks are written in inference form"
_END: Final = Slot("end", "[1], the time of the last frame", shape_only=True)
_FIRST: Final = AttrSpec("first", "int", "time of the first row")
_STEP: Final = AttrSpec("step", "int", "frames between rows", 1, 1)
_MORE: Final = AttrSpec("more", "int", "frames after the end that also count", 0)
_CHAINS: Final = (
    AttrSpec("chains", "int", "d: row t follows row t - d, so that these are d sequences", 1, 1),
    AttrSpec("backward", "bool", "whether the last row comes first: the first block is filled up"),
)


def _is_int64(s: ShapeArgs) -> type[np.int64]:
    return np.int64


def _described(
    name: str,
    doc: str,
    inputs: list[Slot],
    shape: Callable[[ShapeArgs], Sequence[int]],
    attrs: tuple[AttrSpec, ...] = (),
    dtype: Callable[[ShapeArgs], Any] = lambda s: s.dtype("x"),
) -> None:
    """Register an operator of one result."""
    entry = operator(
        name, doc=doc, inputs=inputs, outputs=[Slot("out", "the result")], attrs=list(attrs),
        no_gradient=_NO_GRADIENT,
    )  # fmt: skip

    @entry.shape_rule
    def rule(s: ShapeArgs) -> None:
        s.set("out", (shape(s), np.dtype(dtype(s))))


_described(
    "rows.end",
    "The time of the last frame; the first one has time 0.",
    [Slot("x", "[N, frames, columns]", shape_only=True)],
    lambda s: [1],
    (AttrSpec("unit", "int", "the time is the last multiple of it", 1, 1),),
    _is_int64,
)
_described(
    "rows.times",
    "The times of rows: first, first + step, ... up to end + last.",
    [_END],
    lambda s: [-1],
    (_FIRST, _STEP, AttrSpec("last", "int", "no row is later, counted from the end")),
    _is_int64,
)
_described(
    "rows.inside",
    "Whether times lie between two others.",
    [Slot("times", "[rows]"), _END],
    lambda s: s["times"],
    (
        AttrSpec("low", "float", "the first time", -np.inf),
        AttrSpec("high", "float", "the last time, counted from the end", np.inf),
    ),
    lambda s: np.bool_,
)
_described(
    "rows.periodic",
    "values[time % count] for each time.",
    [Slot("times", "[rows]")],
    lambda s: s["times"],
    (AttrSpec("values", "tensor", "an entry for each place in a period"),),
    lambda s: s.attrs["values"].dtype,
)
_described(
    "rows.numbers",
    "The numbers of the rows at some times, at most `most`, with `end` (end + more) // step.",
    [Slot("times", "[rows]"), Slot("end", _END.doc, optional=True)],
    lambda s: s["times"],
    (_FIRST, _STEP, _MORE, AttrSpec("most", "int", "-1: numbers are not cut to 0 and this", -1)),
    _is_int64,
)
_described(
    "rows.cut",
    "The frames from one on to the end.",
    [Slot("x", "[N, columns, frames]"), _END],
    lambda s: [*s["x"][:2], -1],
    (AttrSpec("start", "int", "the first that is kept", 0, 0), _MORE),
)
_described(
    "rows.border",
    "Rows with zeros around them; negative numbers drop rows.",
    [Slot("x", "[N, columns, rows]")],
    lambda s: [*s["x"][:2], -1],
    (AttrSpec("left", "int", "rows before"), AttrSpec("right", "int", "rows after")),
)
_described(
    "rows.spread",
    "A row repeated for all sequences and rows of `like`, or for (end + more) // step rows.",
    [
        Slot("x", "[N, columns, 1] or [1, columns, 1]"),
        Slot("like", "[N, ...]", shape_only=True),
        Slot("end", _END.doc, optional=True),
    ],
    lambda s: [-1, s["x"][1], -1],
    (_STEP, _MORE),
)
_described(
    "rows.layer",
    "What a layer of the form that is written gives for rows; how it is called is up to that form.",
    [Slot("x", "rows [N, columns, rows] or [M, columns]", duplicable=True)],
    lambda s: [-1, s.attrs["columns"], *(-1 for _ in s.shapes("x")[0][2:])],
    (
        AttrSpec("call", "string", "an expression of {x}, and of {y} for a second one"),
        AttrSpec("columns", "int", "of the result", minimum=0),
    ),
    lambda s: np.float32,
)


def _joined(name: str, doc: str, inputs: list[Slot], rows: bool) -> None:
    """Register an operator from rows to sequences or back; as many results as x."""
    entry = operator(
        name, doc=doc, inputs=inputs, outputs=[Slot("out", "one for each x", duplicable=True)],
        attrs=list(_CHAINS), no_gradient=_NO_GRADIENT,
    )  # fmt: skip

    @entry.shape_rule
    def rule(s: ShapeArgs) -> None:
        rest = [-1] if rows else []
        s.set("out", *[([-1, shape[1], *rest], dtype) for shape, dtype in s.specs("x")])


_joined(
    "rows.sequences",
    "Rows as sequences of equal lengths, for `recurrent`: d for each of N; zeros fill them up.",
    [Slot("x", "[N, columns, rows]", duplicable=True)],
    False,
)
_joined(
    "rows.of_sequences",
    "Rows [N, columns, rows] of the sequences that `rows.sequences` gives.",
    [
        Slot("x", "sequences of rows [columns]", duplicable=True),
        Slot("like", "[N, columns, rows], of as many rows", shape_only=True),
    ],
    True,
)
