"""`b.sum` and `b.mean`: of one variable over axes, all of them where none is given.

The operator `sum` adds several variables up, and `b.sum([x, y])` appends it; `mean` is the mean of
all elements. `b.add_op("sum", ...)` and `b.add_op("mean", ...)` are the operators themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....framework.base.errors import AttributeTypeError
from ..methods import builder_method
from ..operator_methods import where
from .base import Builder
from .handle import Var


@builder_method
def sum(  # noqa: A001  NumPy's name
    builder: Builder,
    x: Var | str | Sequence[Var | str],
    axes: int | Sequence[int] = (),
    keepdims: bool = False,
    *,
    name: str = "",
) -> Var:
    """Sum of x over axes, over all where none is given; of a list of variables, their sum.

    Args:
        x: a variable; or several of one shape, which are added up element by element.
        axes: to sum over, counted from the end where negative; none of them for a list.
        keepdims: keep these axes with size 1.

    Raises:
        AttributeTypeError: axes for a list of variables.
    """
    if isinstance(x, (list, tuple)):
        if _listed(axes) or keepdims:
            raise AttributeTypeError(
                f"{where()}: sum: a list of variables is added up element by element, without axes;"
                " sum the result over axes"
            )
        return builder.add_op("sum", list(x), name=name)
    return builder.add_op("reduce_sum", x, axes=_listed(axes), keepdims=keepdims, name=name)


@builder_method
def mean(
    builder: Builder,
    x: Var | str,
    axes: int | Sequence[int] = (),
    keepdims: bool = False,
    *,
    name: str = "",
) -> Var:
    """Arithmetic mean of x over axes, over all where none is given: the usual end of a cost.

    Args:
        axes: to take the mean over, counted from the end where negative.
        keepdims: keep these axes with size 1.
    """
    if _listed(axes) or keepdims:
        return builder.add_op("reduce_mean", x, axes=_listed(axes), keepdims=keepdims, name=name)
    return builder.add_op("mean", x, name=name)


def _listed(axes: int | Sequence[int]) -> list[Any]:
    return list(axes) if isinstance(axes, Sequence) else [axes]
