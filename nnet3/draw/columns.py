"""A tall placement cut into columns that stand side by side, so that it fits a screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...framework.draw.sugiyama import Box, Placement

Point = tuple[float, float]

_LANE = 7.0
_MARGIN = 14.0
_MOST_COLUMNS = 12
_HALVINGS = 50  # of an interval of heights, until it is narrower than two of them differ by


@dataclass
class Columns:
    """Where boxes stand and edges run.

    Attributes:
        boxes: as in the placement, at their new places.
        curves: of each edge the pieces that are drawn as curves, from top to bottom.
        elbows: of each edge the corners of lines that lead from one column to the next.
    """

    width: float = 0.0
    height: float = 0.0
    boxes: list[Box] = field(default_factory=list)
    curves: list[list[tuple[Point, Point]]] = field(default_factory=list)
    elbows: list[list[list[Point]]] = field(default_factory=list)


def fit_columns(
    placed: Placement, edges: Sequence[tuple[int, int]], width: float, height: float
) -> Columns:
    """The number of columns with which a placement is drawn largest in `width` by `height`.

    Args:
        placed: of at least one box.
        edges: as they were placed.
    """
    best = _cut(placed, edges, 1)
    for count in range(2, _MOST_COLUMNS + 1):
        if best.width <= width and best.height <= height:
            break
        tried = _cut(placed, edges, count)
        if _scale(tried, width, height) > _scale(best, width, height):
            best = tried
    return best


def _scale(columns: Columns, width: float, height: float) -> float:
    return min(width / columns.width, height / columns.height)


def _cut(placed: Placement, edges: Sequence[tuple[int, int]], count: int) -> Columns:
    """The placement in at most `count` columns of about equal height."""
    levels = sorted({box.y for box in placed.boxes})
    rank = {y: number for number, y in enumerate(levels)}
    ranks = [rank[box.y] for box in placed.boxes]
    tops = [float("inf")] * len(levels)
    bottoms = [0.0] * len(levels)
    for box, number in zip(placed.boxes, ranks, strict=True):
        tops[number] = min(tops[number], box.y - box.height / 2)
        bottoms[number] = max(bottoms[number], box.y + box.height / 2)
    column = _columns_of_ranks(tops, bottoms, count)
    crossing = [0] * (column[-1] + 2)  # edges from a column into the next
    for start, end in edges:
        for number in range(column[ranks[start]], column[ranks[end]]):
            crossing[number] += 1

    # the extent of each column, with the edges that run through its ranks
    spans: list[list[float]] = [[] for _ in range(column[-1] + 1)]
    for box, number in zip(placed.boxes, ranks, strict=True):
        spans[column[number]] += [box.x - box.width / 2, box.x + box.width / 2]
    for route, (start, _) in zip(placed.routes, edges, strict=True):
        for at, (x, _) in enumerate(route):
            spans[column[ranks[start] + (at + 1) // 2]].append(x)
    above = _MARGIN + _LANE * max(crossing) if max(crossing) else 0.0
    begins: list[float] = []
    across: list[float] = []
    x = 0.0
    for number, span in enumerate(spans):
        if number:
            x += 2 * _MARGIN + _LANE * crossing[number - 1]
        begins.append(x)
        across.append(x - min(span))
        x += max(span) - min(span)
    first = [column.index(number) for number in range(column[-1] + 1)]
    down = [above - tops[number] for number in first]
    ends = [bottoms[number - 1] for number in (*first[1:], len(column))]

    def moved(point: Point, number: int) -> Point:
        return point[0] + across[column[number]], point[1] + down[column[number]]

    result = Columns(width=x)
    for box, number in zip(placed.boxes, ranks, strict=True):
        result.boxes.append(Box(box.width, box.height, *moved((box.x, box.y), number)))
    used = [0] * len(crossing)
    for route, (start, _) in zip(placed.routes, edges, strict=True):
        curves: list[tuple[Point, Point]] = []
        elbows: list[list[Point]] = []
        for at, (a, b) in enumerate(zip(route, route[1:], strict=False)):
            upper = ranks[start] + (at + 1) // 2
            lower = ranks[start] + (at + 2) // 2
            from_, to = moved(a, upper), moved(b, lower)
            if column[upper] == column[lower]:
                curves.append((from_, to))
                continue
            number = column[upper]
            lane = used[number] * _LANE
            used[number] += 1
            below = ends[number] + down[number] + _MARGIN / 2 + lane
            gutter = begins[number + 1] - _MARGIN - lane
            up = above - _MARGIN / 2 - lane - 4.0
            corners = [from_, (from_[0], below), (gutter, below), (gutter, up), (to[0], up), to]
            elbows.append(corners)
        result.curves.append(curves)
        result.elbows.append(elbows)
    depth = [end + off + _LANE * n for end, off, n in zip(ends, down, crossing, strict=False)]
    result.height = max(depth) + (_MARGIN if max(crossing) else 0.0)
    return result


def _columns_of_ranks(tops: list[float], bottoms: list[float], count: int) -> list[int]:
    """The column of each rank; columns are as low as `count` of them allow."""
    # Bisection of the number itself: there are as many possible heights as pairs of ranks.
    low = 0.0
    high = max(bottoms) - min(tops)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _filled(tops, bottoms, middle)[-1] < count:
            high = middle
        else:
            low = middle
    return _filled(tops, bottoms, high)


def _filled(tops: list[float], bottoms: list[float], height: float) -> list[int]:
    column = 0
    start = tops[0]
    columns = []
    for top, bottom in zip(tops, bottoms, strict=True):
        if bottom - start > height and columns:
            column = column + 1
            start = top
        columns.append(column)
    return columns
