"""x[key] as operators, with NumPy's meaning.

Slices and integers become one `slice`, then `squeeze`; arrays and variables of integers one
`gather`; None becomes `unsqueeze`. Several arrays in one key index the axes that they stand at as
a single axis (`reshape`). Truth values would give shapes that depend on data: arrays are known
while building, variables are refused.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import numpy as np

from ....framework.base.errors import AttributeTypeError, ShapeError, format_shape
from ..calls import where
from .base import Builder, Handle
from .operands import cast, constant, kind_of

_TO_END = (1 << 63) - 1
_IDS = np.dtype(np.int64)


@dataclass(frozen=True)
class _Part:
    """What a key says of one axis of the variable, or None for a new one.

    Attributes:
        axis: of the variable; -1 for a new axis.
        span: for a slice. place: for an integer. ids: an array or variable of integers.
    """

    axis: int = -1
    span: slice | None = None
    place: int | None = None
    ids: Any = None

    @property
    def advanced(self) -> bool:
        return self.place is not None or self.ids is not None


def indexed(x: Handle, key: Any) -> Any:
    """The variable x[key].

    Raises:
        AttributeTypeError: something in the key that is no index.
        ShapeError: more indexes than axes, an index out of range, unknown dimensions where known
            ones are needed.
    """
    return _Indexing(x, key).run()


class _Indexing:
    def __init__(self, x: Handle, key: Any) -> None:
        self.x = x
        self.key = key
        self.builder: Builder = x.builder
        if x.shape is None:
            self._refuse("its number of axes is not known")
        self.shape: tuple[int, ...] = x.shape
        self.parts = self._parts(key if isinstance(key, tuple) else (key,))

    def _refuse(self, why: str, error: type[Exception] = ShapeError) -> NoReturn:
        shown = f"{self.x.name!r} {format_shape(self.x.shape)}"
        raise error(f"{where()}: index of {shown}: {why}")

    # -- reading the key ---------------------------------------------------------------------------

    def _parts(self, key: tuple[Any, ...]) -> list[_Part]:
        """The key axis by axis; axes that it does not name are whole slices."""
        items = [item for one in key for item in self._items(one)]
        taken = sum(item is not None and item is not Ellipsis for item in items)
        dots = [n for n, item in enumerate(items) if item is Ellipsis]
        if len(dots) > 1:
            self._refuse("it has more than one `...`")
        if taken > len(self.shape):
            self._refuse(f"{taken} indexes for {len(self.shape)} axes")
        rest = [slice(None)] * (len(self.shape) - taken)
        place = dots[0] if dots else len(items)
        items[place : place + 1] = rest
        parts = []
        axis = 0
        for item in items:
            if item is None:
                parts.append(_Part())
                continue
            if isinstance(item, slice):
                parts.append(_Part(axis, span=self._span(item)))
            elif isinstance(item, int):
                parts.append(_Part(axis, place=self._place(item, axis)))
            elif isinstance(item, tuple):
                ids, size = item
                parts.append(self._of_mask(ids, size, axis))
            else:
                parts.append(_Part(axis, ids=self._ids(item, axis)))
            axis += 1
        return parts

    def _items(self, item: Any) -> list[Any]:
        """One item of a key as None, Ellipsis, slice, int, variable or integer array.

        Truth values are the places where they hold: for each of their axes an array and a size.
        """
        if item is None or item is Ellipsis or isinstance(item, slice):
            return [item]
        if isinstance(item, Handle):
            if item.dtype is not None and item.dtype.kind not in "iu":
                self._refuse_variable(item)
            return [item]
        if isinstance(item, (bool, np.bool_)):
            self._refuse(f"{item} is no index", AttributeTypeError)
        try:
            return [operator.index(item)]
        except TypeError:
            pass
        if not isinstance(item, (list, range, np.ndarray)):
            self._refuse(
                f"{item!r} is none: want integers, slices, None, `...`, and arrays or variables of"
                " integers",
                AttributeTypeError,
            )
        try:
            array = np.asarray(item, None if len(item) else _IDS)
        except (ValueError, TypeError):
            self._refuse(f"{item!r} is no array of integers", AttributeTypeError)
        if array.dtype.kind == "b" and array.ndim:
            return list(zip(array.nonzero(), array.shape, strict=True))
        if array.dtype.kind not in "iu":
            self._refuse(f"it holds an array of {array.dtype}, want integers", AttributeTypeError)
        return [array.astype(_IDS)]

    def _refuse_variable(self, item: Handle) -> NoReturn:
        if kind_of(item.dtype) == "b":
            self._refuse(
                f"how often {item.name!r} holds is known only while the net runs, and so is the"
                f" shape; b.where({item.name}, {self.x.name}, other) keeps the shape",
            )
        self._refuse(f"{item.name!r} has dtype {item.dtype}, want integers", AttributeTypeError)

    def _of_mask(self, ids: np.ndarray, size: int, axis: int) -> _Part:
        """The places along an axis where an array of truth values, of this size there, holds."""
        dim = self.shape[axis]
        if dim != size:
            known = f"has size {dim}" if dim >= 0 else "is of unknown size"
            self._refuse(f"axis {axis} {known}, and an array of truth values has size {size} there")
        return _Part(axis, ids=ids.astype(_IDS))

    def _span(self, item: slice) -> slice:
        bounds = []
        for bound in (item.start, item.stop, item.step):
            try:
                bounds.append(None if bound is None else operator.index(bound))
            except TypeError:
                self._refuse(
                    f"{bound!r} is no bound of a slice: bounds are integers that are known while"
                    " the net is built",
                    AttributeTypeError,
                )
        if bounds[2] == 0:
            self._refuse("a slice's step is not 0")
        return slice(*bounds)

    def _place(self, place: int, axis: int) -> int:
        """An integer, counted from the front where the dimension is known."""
        dim = self.shape[axis]
        if dim >= 0 and not -dim <= place < dim:
            self._refuse(f"{place} is out of range for axis {axis} of size {dim}")
        return place + dim if place < 0 <= dim else place

    def _ids(self, ids: Any, axis: int) -> Any:
        """Integers; an array's are counted from the front where the dimension is known."""
        dim = self.shape[axis]
        if isinstance(ids, Handle) or dim < 0:
            return ids
        bad = ids[(ids < -dim) | (ids >= dim)]
        if bad.size:
            self._refuse(f"{bad.flat[0]} is out of range for axis {axis} of size {dim}")
        return np.where(ids < 0, ids + dim, ids)

    # -- the operators -----------------------------------------------------------------------------

    def run(self) -> Any:
        given = [part for part in self.parts if part.ids is not None]
        out = self._sliced()
        kept: list[int | str] = list(range(len(self.shape)))  # axes of x, "ids" and "new"
        if given:
            out, kept = self._gathered(out, given)
        dropped = [n for n, axis in enumerate(kept) if axis in self._places()]
        if dropped:
            out = self.builder.add_op("squeeze", out, axes=dropped)
            kept = [axis for n, axis in enumerate(kept) if n not in dropped]
        wanted = self._layout(kept.count("ids"))
        ids = (n for n, axis in enumerate(kept) if axis == "ids")
        order = [
            next(ids) if axis == "ids" else kept.index(axis) for axis in wanted if axis != "new"
        ]
        if order != sorted(order):
            out = self.builder.add_op("transpose", out, perm=order)
        new = [n for n, axis in enumerate(wanted) if axis == "new"]
        return self.builder.add_op("unsqueeze", out, axes=new) if new else out

    def _places(self) -> list[int]:
        return [part.axis for part in self.parts if part.place is not None]

    def _layout(self, ids: int) -> list[int | str]:
        """The axes of the result. Axes of arrays stand where they do in the key, where that is one
        place, else in front; integers beside arrays count as arrays."""
        advanced = [n for n, part in enumerate(self.parts) if part.advanced] if ids else []
        together = advanced == list(range(advanced[0], advanced[-1] + 1)) if advanced else True
        layout: list[int | str] = [] if together else ["ids"] * ids
        for n, part in enumerate(self.parts):
            if together and advanced and n == advanced[0]:
                layout += ["ids"] * ids
            if part.axis < 0:
                layout.append("new")
            elif not part.advanced:
                layout.append(part.axis)
        return layout

    def _sliced(self) -> Any:
        """x cut along every axis of a slice or integer; axes of integers keep size 1."""
        axes, starts, ends, steps = [], [], [], []
        for part in self.parts:
            if part.place is not None:
                start = part.place
                end = part.place + 1 or _TO_END
                step = 1
            elif part.span is not None and part.span != slice(None):
                step = part.span.step or 1
                first, last = (0, _TO_END) if step > 0 else (_TO_END, -_TO_END)
                start = first if part.span.start is None else part.span.start
                end = last if part.span.stop is None else part.span.stop
                if (start, end, step) == (0, _TO_END, 1):
                    continue
            else:
                continue
            axes.append(part.axis)
            starts.append(max(-_TO_END, min(start, _TO_END)))
            ends.append(max(-_TO_END, min(end, _TO_END)))
            steps.append(step)
        if not axes:
            return self.x
        return self.builder.add_op(
            "slice", self.x, axes=axes, starts=starts, ends=ends, steps=steps
        )

    def _gathered(self, out: Any, given: Sequence[_Part]) -> tuple[Any, list[int | str]]:
        """Entries of `out` at the arrays of a key, and what its axes are."""
        rank = len(self.shape)
        axes = [part.axis for part in given]
        first = axes[0]
        ids = given[0].ids
        rest: list[int | str] = [axis for axis in range(rank) if axis not in axes[1:]]
        if len(given) > 1:
            order = [axis for axis in range(rank) if axis not in axes]
            order[first:first] = axes
            if order != sorted(order):
                out = self.builder.add_op("transpose", out, perm=order)
            rest = [axis for axis in order if axis not in axes[1:]]
            out, ids = self._joined(out, given)
        count = self._rank(ids)
        place = rest.index(first)
        attrs: dict[str, Any] = {"axis": place}
        if isinstance(ids, Handle) or (ids < 0).any():
            attrs["from_end"] = True
        if not isinstance(ids, Handle):
            ids = constant(self.builder, ids, _IDS)
        out = self.builder.add_op("gather", out, ids, **attrs)
        return out, [*rest[:place], *(["ids"] * count), *rest[place + 1 :]]

    def _rank(self, ids: Any) -> int:
        shape = ids.shape
        if shape is None:
            self._refuse(f"the number of axes of {ids.name!r} is not known")
        return len(shape)

    def _joined(self, out: Any, given: Sequence[_Part]) -> tuple[Any, Any]:
        """`out` with the axes of several arrays as one, and the places along that."""
        first = given[0].axis
        dims = [self.shape[part.axis] for part in given]
        if min(dims[1:]) < 0:
            self._refuse("several arrays in one index need known dimensions, the first one's aside")
        shape = list(out.shape)
        whole = -1 if dims[0] < 0 else prod(dims)
        rest = shape[first + len(given) :]
        if (whole < 0) + sum(dim < 0 for dim in rest) > 1:
            self._refuse("several arrays in one index leave more than one dimension unknown")
        shape = [0] * first + [whole, *rest]  # 0 keeps a dimension
        out = self.builder.add_op("reshape", out, shape=shape)
        ids = given[0].ids
        for part, dim in zip(given[1:], dims[1:], strict=True):
            ids = self._sum(self._product(ids, dim), self._checked(part.ids, dim))
        return out, ids

    def _checked(self, ids: Any, dim: int) -> Any:
        """Integers from 0 to dim - 1: a variable's are looked up, and so checked."""
        if not isinstance(ids, Handle):
            return ids
        places = self.builder.add_op("arange", stop=dim)
        return self.builder.add_op("gather", places, ids, from_end=True)

    def _product(self, ids: Any, dim: int) -> Any:
        if not isinstance(ids, Handle):
            return ids * dim
        factor = constant(self.builder, np.asarray(dim), _IDS)
        return self.builder.add_op("mul", cast(ids, _IDS), factor)

    def _sum(self, one: Any, two: Any) -> Any:
        if not isinstance(one, Handle) and not isinstance(two, Handle):
            try:
                return one + two
            except ValueError:
                shapes = f"{list(one.shape)} and {list(two.shape)}"
                self._refuse(f"its arrays of shapes {shapes} do not broadcast")
        both = [
            ids if isinstance(ids, Handle) else constant(self.builder, ids, _IDS)
            for ids in (one, two)
        ]
        return self.builder.add_op("add", *both)
