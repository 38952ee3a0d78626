"""Expressions of rows in the text of a forward function, and how they are cut."""

from __future__ import annotations

import keyword
from dataclasses import dataclass

from ...onnx.from_nnet3.grids import Grid
from ..folder import NotInTorchError


@dataclass(frozen=True)
class Rows:
    """An expression and the times of its rows; `still`: one row, which holds for all times."""

    text: str
    grid: Grid
    still: bool = False


def start_of(have: Grid, grid: Grid, offset: int) -> int | None:
    """How many rows of `have` lie before that at `offset` for the first row of a grid."""
    start, odd = divmod(grid.first + offset - have.first, have.step)
    return None if odd or start < 0 else start


def drop_of(have: Grid, grid: Grid, offset: int) -> int | None:
    """How many rows of `have` lie behind that at `offset` for the last row of a grid."""
    drop, odd = divmod(have.last - grid.last - offset, have.step)
    return None if odd or drop < 0 else drop


def is_regular(have: Grid, grid: Grid, offset: int) -> bool:
    """Whether a slice reads the rows at an offset, however long the input is."""
    if grid.step % have.step or start_of(have, grid, offset) is None:
        return False
    return not grid.moving or drop_of(have, grid, offset) is not None


def cut(rows: Rows, grid: Grid, first: int, last: int, stride: int) -> str:
    """Rows from that at `first` for the grid's first row to that at `last` for its last one.

    Raises:
        NotInTorchError: there is no such slice.
    """
    have = rows.grid
    start, drop = start_of(have, grid, first), drop_of(have, grid, last)
    if start is None or (grid.moving and (drop is None or not have.moving)):
        raise NotInTorchError(f"'{rows.text}' has no rows {grid} among {have}")
    if not grid.moving:
        stop = start + (grid.rows(0) - 1) * (grid.step // have.step)
        end = str(stop + (last - first) // have.step + 1)
    else:
        end = f"-{drop}" if drop else ""
    if not start and not end and stride == 1:
        return rows.text
    step = f":{stride}" if stride > 1 else ""
    return f"{atom(rows.text)}[:, :, {start or ''}:{end}{step}]"


def atom(text: str) -> str:
    """An expression that may be followed by an attribute or an index."""
    depth, bare = 0, True
    for c in text:
        depth += (c in "([") - (c in ")]")
        bare = bare and not (c == " " and not depth)
    return text if bare else f"({text})"


def bare(text: str) -> str:
    """An expression without brackets around all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for place, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if not depth and place < len(text) - 1 or depth == 1 and c == ",":
            return text
    return text[1:-1]


def unique(name: str, taken: set[str]) -> str:
    """A Python name that is like another, and not yet taken; it is taken then."""
    plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name) or "_"
    if plain[0].isdigit() or keyword.iskeyword(plain) or plain.startswith("__"):
        plain = f"n_{plain}"
    found, count = plain, 1
    while found in taken:
        count += 1
        found = f"{plain}_{count}"
    taken.add(found)
    return found
