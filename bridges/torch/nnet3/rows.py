"""Expressions of rows in the text of a forward function, and how they are cut."""

from __future__ import annotations

from dataclasses import dataclass

from ...nnet3_rows.grids import Grid
from ..folder import NotInTorchError
from ..formatting import atom


@dataclass(frozen=True)
class Rows:
    """An expression and the times of its rows; `still`: one row, which holds for all times."""

    text: str
    grid: Grid
    still: bool = False


def cut(rows: Rows, grid: Grid, first: int, last: int, stride: int) -> str:
    """Rows from that at `first` for the grid's first row to that at `last` for its last one.

    Raises:
        NotInTorchError: there is no such slice.
    """
    have = rows.grid
    start, drop = have.before(grid, first), have.behind(grid, last)
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
