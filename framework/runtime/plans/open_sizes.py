"""The shapes of a plan as polynomials: those of all variables, by the sizes of some inputs.

So are the offsets of sequences that a net makes of a batch, all of which are equally long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

from ...base.sequence import EvenOffsets
from ...base.sizes.dims import Dims
from ...base.sizes.shape import ArraySpec, Levels

Specs = Mapping[str, ArraySpec]
Found = tuple[Sequence[ArraySpec] | None, Mapping[str, Levels]]
"""Shapes and dtypes, and offsets of variables that hold sequences."""


class OpenSizes:
    """Shapes and dtypes that follow from those of inputs, of which some sizes may vary.

    Args:
        known: of the inputs. varying: input -> axes whose sizes, of 2 and more, are left open.
        compute: finds what follows; None where it cannot. Called once, with `Dims` for sizes, for
            which `EvenOffsets` stand for offsets.

    Raises:
        ValueError: what follows holds for these sizes alone.
    """

    def __init__(
        self,
        known: Specs,
        varying: Mapping[str, Collection[int]],
        compute: Callable[[dict[str, ArraySpec]], Found],
    ) -> None:
        self._fixed = {name: spec for name, spec in known.items() if name not in varying}
        self._open = {name: (len(known[name][0]), known[name][1]) for name in varying}
        self._fixed_sizes: list[tuple[int, int]] = []
        dims = Dims()
        opened = dict(known)
        place = 0
        for name, axes in varying.items():
            shape, dtype = known[name]
            open_shape: list[Any] = list(shape)
            for axis, size in enumerate(shape):
                if axis in axes:
                    open_shape[axis] = dims.size(place, size)
                else:
                    self._fixed_sizes.append((place, size))
                place += 1
            opened[name] = tuple(open_shape), dtype
        found, levels = compute(opened)
        if found is None or dims.pinned:
            raise ValueError("shapes that hold for these sizes alone")
        self._found = [(len(shape), dtype) for shape, dtype in found]
        self._levels = {name: own for name, own in levels.items() if own}
        every = {id(one): one for own in self._levels.values() for one in own}
        self._even = [one for one in every.values() if isinstance(one, EvenOffsets)]
        lengths = [size for one in self._even for size in (one.count, one.length)]
        # A function of Python: there are few of them, as layers have shapes in common.
        self._numbers_of = dims.values_of([*[n for shape, _ in found for n in shape], *lengths])
        self._dims = dims

    def specs(self, known: Specs) -> tuple[list[ArraySpec], dict[str, Levels]] | None:
        """What follows from other sizes; None where it is to be computed again."""
        for name, spec in self._fixed.items():
            own = known[name]  # the same one, but where the variable holds another array
            if own is not spec and own != spec:
                return None
        row: list[int] = []
        for name, (rank, dtype) in self._open.items():
            shape, own = known[name]
            if len(shape) != rank or own != dtype:
                return None
            row += shape
        if any([row[at] != size for at, size in self._fixed_sizes]):
            return None
        if not self._dims.meets(row):
            return None
        numbers = iter(self._numbers_of(row))
        specs = [(tuple(islice(numbers, rank)), dtype) for rank, dtype in self._found]
        made = {id(one): EvenOffsets.of(next(numbers), next(numbers)) for one in self._even}
        levels = {
            name: tuple([made.get(id(one), one) for one in own])
            for name, own in self._levels.items()
        }
        return specs, levels
