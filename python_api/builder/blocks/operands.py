"""Operators of any number of variables, which are given one after the other: einsum, meshgrid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....framework.base.errors import AttributeTypeError
from ....framework.ir.registry import lookup
from ..calls import where
from ..methods import builder_method
from ..net_builder import NetBuilder
from ..var import Var


def _listed(operands: Sequence[Any]) -> list[Any]:
    """Variables given one by one, or as one list."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        return list(operands[0])
    return list(operands)


@builder_method
def einsum(
    builder: NetBuilder,
    equation: str,
    *operands: Var | str | Sequence[Var | str],
    name: str = "",
) -> Var:
    """Sum of products by Einstein's convention, as numpy.einsum and torch.einsum.

        b.einsum("bqd,bkd->bqk", q, k)

    Args:
        equation: a letter for each axis of each operand and, after `->`, of the result;
            see the operator (`opscope ops einsum`).
        operands: arrays of one floating dtype.

    Raises:
        AttributeTypeError: the first argument is no text.
        ShapeError: an equation that does not fit the operands.
    """
    if not isinstance(equation, str):
        raise AttributeTypeError(
            f"{where()}: einsum takes the equation first, such as 'ij,jk->ik', not {equation!r}"
        )
    given = {"equation": equation}
    return builder.append(lookup("einsum"), (_listed(operands),), given, name=name)


@builder_method
def meshgrid(
    builder: NetBuilder,
    *x: Var | str | Sequence[Var | str],
    indexing: str = "ij",
    name: str = "",
) -> tuple[Var, ...]:
    """Coordinates of a grid: each vector along an axis of its own, repeated along all others.

    Args:
        x: vectors [A], [B], ...
        indexing: "ij": vector i lies along axis i; "xy": the first two change places.

    Returns:
        One array [A, B, ...] for each vector.
    """
    vectors = _listed(x)
    grids = builder.append(lookup("meshgrid"), (vectors,), {"indexing": indexing}, name=name)
    return grids if isinstance(grids, tuple) else (grids,)
