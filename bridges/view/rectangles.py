"""Who wrote what a view variable reads: views are rectangles of one base variable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...framework.ir.op_list import VarDecl

_ALL = (0, -1, 0, -1)
_MOST = 64  # rectangles that one read looks back at

Rectangle = tuple[int, int, int, int]
"""Rows and columns, from begin to end; -1 is the last."""


class Rectangles:
    """The writers of each base variable, rectangle by rectangle."""

    def __init__(self, variables: Iterable[VarDecl]) -> None:
        self._places: dict[str, tuple[str, Rectangle]] = {}
        self._written: dict[str, list[tuple[Rectangle, str, str]]] = {}
        for var in variables:
            if var.view is not None:
                view = var.view
                rectangle = (view.row_begin, view.row_end, view.col_begin, view.col_end)
                self._places[var.name] = (view.base, rectangle)
                self._written[view.base] = []
        for base in self._written:
            self._places.setdefault(base, (base, _ALL))

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def write(self, name: str, value: str, writer: str) -> None:
        """An item writes a view or a base; `value` is the key of what it writes."""
        base, rectangle = self._places[name]
        written = self._written.setdefault(base, [])
        written[:] = [entry for entry in written[-_MOST:] if not _covers(rectangle, entry[0])]
        written.append((rectangle, value, writer))

    def written(self, name: str) -> Iterator[tuple[str, str]]:
        """(value, writer) of each write that a read of a view or base sees, the latest first."""
        base, rectangle = self._places[name]
        for other, value, writer in reversed(self._written.get(base, [])):
            if _overlap(rectangle, other):
                yield value, writer
                if _covers(other, rectangle):
                    return


def _ends(rectangle: Rectangle) -> tuple[float, float, float, float]:
    top, bottom, left, right = rectangle
    return top, bottom if bottom >= 0 else float("inf"), left, right if right >= 0 else float("inf")


def _overlap(a: Rectangle, b: Rectangle) -> bool:
    (t, u, v, w), (p, q, r, s) = _ends(a), _ends(b)
    return t < q and p < u and v < s and r < w


def _covers(a: Rectangle, b: Rectangle) -> bool:
    (t, u, v, w), (p, q, r, s) = _ends(a), _ends(b)
    return t <= p and q <= u and v <= r and s <= w
