"""The shapes of a plan as polynomials: those of all variables, by the sizes of some inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ...base.sizes.dims import Dims
from ...base.sizes.many_dims import ManyDims, Table
from ...base.sizes.shape import ArraySpec

Specs = Mapping[str, ArraySpec]


class OpenSizes:
    """Shapes and dtypes that follow from those of inputs, of which some sizes may vary.

    Args:
        known: of the inputs. varying: input -> axes whose sizes, of 2 and more, are left open.
        compute: finds what follows; None where it cannot. Called once, with `Dims` for sizes.

    Raises:
        ValueError: what follows holds for these sizes alone.
    """

    def __init__(
        self,
        known: Specs,
        varying: Mapping[str, Collection[int]],
        compute: Callable[[dict[str, ArraySpec]], Sequence[ArraySpec] | None],
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
        found = compute(opened)
        if found is None or dims.pinned:
            raise ValueError("shapes that hold for these sizes alone")
        self._found = [(len(shape), dtype) for shape, dtype in found]
        table = Table(dims, [size for shape, _ in found for size in shape])
        self._dims = ManyDims([table], [np.arange(place)])

    def specs(self, known: Specs) -> list[ArraySpec] | None:
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
        try:
            numbers, (met,) = self._dims.numbers(np.array(row, np.int64))
            sizes = iter(self._dims.values[0].values(numbers).tolist() if met else ())
        except OverflowError:
            return None
        return [(tuple(islice(sizes, rank)), dtype) for rank, dtype in self._found] if met else None
