"""The shapes of a plan as polynomials: those of all variables, by the sizes of some inputs.

So are the offsets of sequences that a net makes of a batch, all of which are equally long. Of the
offsets of inputs shape rules may ask no more than what `OpenOffsets` say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

from ...base.sequence import EvenOffsets, OpenOffsets, equal_levels
from ...base.sizes.dims import Dims
from ...base.sizes.shape import ArraySpec, Levels

Specs = Mapping[str, ArraySpec]
Found = tuple[Sequence[ArraySpec] | None, Mapping[str, Levels]]
"""Shapes and dtypes, and offsets of variables that hold sequences."""


class OpenSizes:
    """Shapes and dtypes that follow from those of inputs, of which some sizes may vary.

    Args:
        known, levels: of the inputs; the offsets of those that hold sequences, one level of them.
        varying: input -> axes whose sizes, of 2 and more, are left open.
        compute: finds what follows; None where it cannot. Called once, with `Dims` for sizes, for
            which `OpenOffsets` and `EvenOffsets` stand for offsets.

    Raises:
        ValueError: what follows holds for these sizes alone.
    """

    def __init__(
        self,
        known: Specs,
        levels: Mapping[str, Levels],
        varying: Mapping[str, Collection[int]],
        compute: Callable[[dict[str, ArraySpec], dict[str, Levels]], Found],
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
        # Inputs whose sequences are equally long stay so: of labels and words, say.
        self._alike: list[list[str]] = []
        for name, own in levels.items():
            groups = [one for one in self._alike if equal_levels(levels[one[0]], own)]
            if not groups:
                self._alike.append([name])
            else:
                groups[0].append(name)
        self._given: list[OpenOffsets] = []
        open_levels: dict[str, Levels] = {}
        for names in self._alike:
            numbers = OpenOffsets.numbers(levels[names[0]][0])
            given: Any = OpenOffsets(*[dims.size(at, n) for at, n in enumerate(numbers, place)])
            place += len(numbers)
            self._given.append(given)
            open_levels |= {name: (given,) for name in names}
        found, made = compute(opened, open_levels)
        if found is None or dims.pinned:
            raise ValueError("shapes that hold for these sizes alone")
        self._found = [(len(shape), dtype) for shape, dtype in found]
        self._levels = {name: own for name, own in made.items() if own}
        every = {id(one): one for own in self._levels.values() for one in own}
        self._even = [one for one in every.values() if isinstance(one, EvenOffsets)]
        lengths = [size for one in self._even for size in (one.count, one.length)]
        # A function of Python: there are few of them, as layers have shapes in common.
        self._numbers_of = dims.values_of([*[n for shape, _ in found for n in shape], *lengths])
        self._dims = dims

    def specs(
        self, known: Specs, levels: Mapping[str, Levels]
    ) -> tuple[list[ArraySpec], dict[str, Levels]] | None:
        """What follows from other sizes; None where it is to be computed again."""
        first = [levels.get(names[0], ()) for names in self._alike]
        if len(levels) != sum(map(len, self._alike)) or any([len(own) != 1 for own in first]):
            return None
        for names, own in zip(self._alike, first, strict=True):
            if not all([equal_levels(levels.get(name, ()), own) for name in names[1:]]):
                return None
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
        row += [number for own in first for number in OpenOffsets.numbers(own[0])]
        if not self._dims.meets(row):
            return None
        numbers = iter(self._numbers_of(row))
        specs = [(tuple(islice(numbers, rank)), dtype) for rank, dtype in self._found]
        made = {id(one): EvenOffsets.of(next(numbers), next(numbers)) for one in self._even}
        made |= {id(one): own[0] for one, own in zip(self._given, first, strict=True)}
        found = {
            name: tuple([made.get(id(one), one) for one in own])
            for name, own in self._levels.items()
        }
        return specs, found
