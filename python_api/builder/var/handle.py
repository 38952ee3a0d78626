"""Var: what the methods of a NetBuilder return. It is used as an array is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from numpy.typing import DTypeLike

from ....framework.base.errors import AttributeTypeError, ShapeError
from ..calls import where
from .base import Builder, Handle
from .indexing import indexed
from .misuse import (
    known_length,
    missing_attribute,
    no_assignment,
    no_membership,
    no_numpy,
    no_truth,
    no_value,
)
from .operands import arithmetic, as_array, cast, compare, is_foreign, kind_of, logic, pair, power

Axes = int | Sequence[int] | None
"""Of a reduction: one axis, several, or None for all."""


class Var(Handle):
    """A variable of a NetBuilder: its name, and what is known of its shape and dtype.

    Infix operators, indexing and the methods of NumPy's arrays append operators: `x @ w + b`,
    `x[:, -1]`, `x.reshape(-1, 4).sum(axis=1)`. Beside a variable numbers, arrays and lists of
    numbers become constants, also on the left. `==` and `!=` compare elements; a Var's hash is its
    identity, so that it can be a key, and `any(v is x for v in list)` looks for it in a list.

    Dtypes follow NumPy: integers stay integers except for `/`. Where integers meet floats they
    become floats of the dtype that is there, else of the builder's.

    A Var holds no numbers. These come from `b.run(scope, feed=..., fetch=[x])`.
    """

    __slots__ = ()
    __array_ufunc__ = None  # NumPy's arrays leave infix operators to a Var on their right
    __array_priority__ = 1000.0

    # -- arithmetic --------------------------------------------------------------------------------

    def _binary(self, op_type: str, symbol: str, other: Any, swapped: bool = False) -> Any:
        if not isinstance(other, Var) and as_array(other) is None and is_foreign(other):
            return NotImplemented
        return arithmetic(op_type, symbol, self, other, swapped)

    def __add__(self, other: Any) -> Var:
        return self._binary("add", "+", other)

    def __radd__(self, other: Any) -> Var:
        return self._binary("add", "+", other, True)

    def __sub__(self, other: Any) -> Var:
        return self._binary("sub", "-", other)

    def __rsub__(self, other: Any) -> Var:
        return self._binary("sub", "-", other, True)

    def __mul__(self, other: Any) -> Var:
        return self._binary("mul", "*", other)

    def __rmul__(self, other: Any) -> Var:
        return self._binary("mul", "*", other, True)

    def __truediv__(self, other: Any) -> Var:
        return self._binary("div", "/", other)

    def __rtruediv__(self, other: Any) -> Var:
        return self._binary("div", "/", other, True)

    def __floordiv__(self, other: Any) -> Var:
        return self._binary("floor_divide", "//", other)

    def __rfloordiv__(self, other: Any) -> Var:
        return self._binary("floor_divide", "//", other, True)

    def __mod__(self, other: Any) -> Var:
        return self._binary("mod", "%", other)

    def __rmod__(self, other: Any) -> Var:
        return self._binary("mod", "%", other, True)

    def __pow__(self, other: Any) -> Var:
        return power(self, other, False)

    def __rpow__(self, other: Any) -> Var:
        return power(self, other, True)

    def __matmul__(self, other: Any) -> Var:
        return self.builder.add_op("matmul", *pair(self, other, "@"))

    def __rmatmul__(self, other: Any) -> Var:
        return self.builder.add_op("matmul", *reversed(pair(self, other, "@")))

    def __neg__(self) -> Var:
        return self.builder.add_op("neg", self)

    def __pos__(self) -> Var:
        return self

    def __abs__(self) -> Var:
        return self.builder.add_op("abs", self)

    def __round__(self, digits: int = 0) -> Var:
        return self.round(digits)

    # -- comparisons and logic ---------------------------------------------------------------------

    def __lt__(self, other: Any) -> Var:
        return compare("less", "<", self, other)

    def __le__(self, other: Any) -> Var:
        return compare("less_equal", "<=", self, other)

    def __gt__(self, other: Any) -> Var:
        return compare("greater", ">", self, other)

    def __ge__(self, other: Any) -> Var:
        return compare("greater_equal", ">=", self, other)

    def __eq__(self, other: object) -> Var:  # pyright: ignore[reportIncompatibleMethodOverride]
        return compare("equal", "==", self, other)

    def __ne__(self, other: object) -> Var:  # pyright: ignore[reportIncompatibleMethodOverride]
        return compare("not_equal", "!=", self, other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Var:
        return logic("logical_and", "&", self, other, False)

    def __rand__(self, other: Any) -> Var:
        return logic("logical_and", "&", self, other, True)

    def __or__(self, other: Any) -> Var:
        return logic("logical_or", "|", self, other, False)

    def __ror__(self, other: Any) -> Var:
        return logic("logical_or", "|", self, other, True)

    def __xor__(self, other: Any) -> Var:
        return logic("logical_xor", "^", self, other, False)

    def __rxor__(self, other: Any) -> Var:
        return logic("logical_xor", "^", self, other, True)

    def __invert__(self) -> Var:
        return self.builder.add_op("logical_not", self)

    # -- elements ----------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Var:
        """x[key] as in NumPy: integers, slices, None, `...`, arrays and variables of integers."""
        return indexed(self, key)

    def __len__(self) -> int:
        """The first dimension, where it is known."""
        return known_length(self, "len of")

    def __iter__(self) -> Iterator[Var]:
        """x[0], x[1], ..., where the first dimension is known."""
        return (self[n] for n in range(known_length(self, "iteration over")))

    # -- methods of NumPy's arrays -----------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """The number of axes.

        Raises:
            ShapeError: it is not known while the net is built.
        """
        shape = self.shape
        if shape is None:
            raise ShapeError(f"{where()}: the number of axes of {self!r} is not known")
        return len(shape)

    @property
    def T(self) -> Var:
        """The axes in reverse order."""
        return self.builder.add_op("transpose", self)

    def transpose(self, *axes: Any) -> Var:
        """The axes in another order; in reverse where none is given."""
        return self.builder.add_op("transpose", self, perm=_integers(axes))

    def swapaxes(self, one: int, other: int) -> Var:
        """Two axes exchanged."""
        order = list(range(self.ndim))
        try:
            order[one], order[other] = order[other], order[one]
        except IndexError:
            raise ShapeError(f"{where()}: {self!r} has no axes {one} and {other}") from None
        return self.builder.add_op("transpose", self, perm=order)

    def reshape(self, *shape: Any) -> Var:
        """Another shape, as one sequence or several integers: -1 takes what is left, 0 copies."""
        return self.builder.add_op("reshape", self, shape=_integers(shape))

    def flatten(self) -> Var:
        """All elements along one axis."""
        return self.builder.add_op("reshape", self, shape=[-1])

    def squeeze(self, axis: Axes = None) -> Var:
        """Without axes of size 1; None: all that are known to have it."""
        if axis is None:
            axis = [n for n, dim in enumerate(self.shape or ()) if dim == 1]
        return self.builder.add_op("squeeze", self, axes=_axes(axis))

    def astype(self, dtype: DTypeLike) -> Var:
        """Converted to another dtype."""
        return self.builder.add_op("cast", self, dtype=dtype)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Var:
        """Sum over axes; None: over all."""
        return self._reduced("reduce_sum", axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Var:
        """Arithmetic mean over axes; None: over all. Integers become floats first."""
        floats = cast(self, self.builder.dtype) if kind_of(self.dtype) != "f" else self
        return self.builder.add_op("reduce_mean", floats, axes=_axes(axis), keepdims=keepdims)

    def prod(self, axis: Axes = None, keepdims: bool = False) -> Var:
        """Product over axes; None: over all."""
        return self._reduced("reduce_prod", axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Var:
        """Maximum over axes; None: over all."""
        return self._reduced("reduce_max", axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Var:
        """Minimum over axes; None: over all."""
        return self._reduced("reduce_min", axis, keepdims)

    def _reduced(self, op_type: str, axis: Axes, keepdims: bool) -> Any:
        return self.builder.add_op(op_type, self, axes=_axes(axis), keepdims=keepdims)

    def argmax(self, axis: int | None = None) -> Var:
        """Position of the largest entry along an axis; None: among all elements."""
        whole = self.flatten() if axis is None else self
        return self.builder.add_op("argmax", whole, axis=axis or 0)

    def argmin(self, axis: int | None = None) -> Var:
        """Position of the smallest entry along an axis; None: among all elements."""
        whole = self.flatten() if axis is None else self
        return self.builder.add_op("argmin", whole, axis=axis or 0)

    def cumsum(self, axis: int | None = None) -> Var:
        """Running sum along an axis; None: over all elements, along one axis."""
        whole = self.flatten() if axis is None else self
        return self.builder.add_op("cumsum", whole, axis=axis or 0)

    def clip(self, min: float | None = None, max: float | None = None) -> Var:  # noqa: A002
        """Elements below `min` and above `max` replaced by these."""
        limits = {"minimum": min, "maximum": max}
        given: dict[str, Any] = {k: v for k, v in limits.items() if v is not None}
        return self.builder.add_op("clip", self, **given)

    def round(self, decimals: int = 0) -> Var:
        """Nearest whole numbers; the even one of two."""
        if decimals:
            raise AttributeTypeError(
                f"{where()}: rounding of {self!r} to {decimals} decimals: only whole numbers"
                f" are there; write (x * {10**decimals}).round() / {10**decimals}"
            )
        return self.builder.add_op("round", self) if kind_of(self.dtype) == "f" else self

    # -- what a Var is not -------------------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        no_truth(self)

    def __float__(self) -> NoReturn:
        no_value(self, "float(...)")

    def __int__(self) -> NoReturn:
        no_value(self, "int(...)")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        no_value(self, "a NumPy array")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        no_numpy(self, function.__name__)

    def __contains__(self, item: Any) -> NoReturn:
        no_membership(self)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        no_assignment(self)

    if not TYPE_CHECKING:  # type checkers would take every attribute for one that exists

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(missing_attribute(self, name, dir(Var)))


def _integers(given: tuple[Any, ...]) -> list[Any]:
    """Arguments that are integers, or one sequence of them."""
    if len(given) == 1 and isinstance(given[0], Sequence):
        given = tuple(given[0])
    return list(given)


def _axes(axis: Axes) -> list[int]:
    """The attribute `axes` of a reduction: none for all."""
    if axis is None:
        return []
    return list(axis) if isinstance(axis, Sequence) else [axis]


def as_var(builder: Builder, x: Var | str) -> Var:
    """A handle as it is; a name as a handle, which operators check."""
    return x if isinstance(x, Var) else Var(builder, x)
