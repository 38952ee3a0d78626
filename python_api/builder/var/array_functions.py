"""Functions of NumPy's whose operators alone would be narrower: methods of the builder.

`b.sum` and `b.mean` are of one variable over axes, all of them where none is given. The operator
`sum` adds several variables up, and `b.sum([x, y])` appends it; `mean` is the mean of all elements.
`b.where`, `b.maximum` and `b.minimum` take numbers and arrays beside variables, and bring both to
one dtype as infix operators do; methods such as `b.mul` do so beside a number or an array.
`b.add_op("sum", ...)` and so on are the operators themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....framework.base.errors import AttributeTypeError
from ..calls import where as place
from ..methods import builder_method
from .base import Builder, Handle
from .handle import Var, as_var
from .operands import as_array, constant, kind_of, pair


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
                f"{place()}: sum: a list of variables is added up element by element, without axes;"
                " sum the result over axes"
            )
        return builder.add_op("sum", x=list(x), name=name)
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


@builder_method
def where(builder: Builder, condition: Any, x: Any, y: Any, *, name: str = "") -> Var:
    """Elements of x where a condition holds, else of y. Shapes broadcast as in NumPy.

    Args:
        condition: truth values: a variable, or an array.
        x, y: variables, numbers or arrays; they get one dtype, as operands of `+` do.

    Raises:
        AttributeTypeError: something else.
    """
    left, right = both(builder, "where", x, y)
    if as_array(condition) is not None:
        condition = constant(builder, np.asarray(condition), np.asarray(condition).dtype)
    return builder.add_op("where", condition, left, right, name=name)


@builder_method
def maximum(builder: Builder, x: Any, y: Any, *, name: str = "") -> Var:
    """Larger of two, element by element; NaN where either is. The gradient of a tie belongs to x.

    Args:
        x, y: variables, numbers or arrays; they get one dtype, as operands of `+` do.

    Raises:
        AttributeTypeError: something else.
    """
    return builder.add_op("maximum", *both(builder, "maximum", x, y), name=name)


@builder_method
def minimum(builder: Builder, x: Any, y: Any, *, name: str = "") -> Var:
    """Smaller of two, element by element; NaN where either is. The gradient of a tie belongs to x.

    Args:
        x, y: variables, numbers or arrays; they get one dtype, as operands of `+` do.

    Raises:
        AttributeTypeError: something else.
    """
    return builder.add_op("minimum", *both(builder, "minimum", x, y), name=name)


def both(builder: Builder, method: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Two operands as variables of one dtype.

    Raises:
        AttributeTypeError: one is neither variable nor number nor array.
    """
    one, two = (as_var(builder, v) if isinstance(v, str) else v for v in (x, y))
    if isinstance(one, Handle):
        return pair(one, two, method)
    if isinstance(two, Handle):
        return tuple(reversed(pair(two, one, method)))
    arrays = as_array(one), as_array(two)
    if arrays[0] is None or arrays[1] is None:
        bad = one if arrays[0] is None else two
        raise AttributeTypeError(
            f"{place()}: {method}: want variables, numbers and arrays, not {bad!r}"
        )
    dtype = np.result_type(*arrays)
    if kind_of(dtype) == "f":
        dtype = builder.dtype
    return constant(builder, arrays[0], dtype), constant(builder, arrays[1], dtype)
