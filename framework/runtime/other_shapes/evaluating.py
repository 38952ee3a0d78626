"""The polynomials of all traces of a plan for the sizes of one frame: in C, or by NumPy without it.

NumPy takes some 25 operations for a few hundred polynomials, most of which cost more than their
sums; C takes one call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ...base.sizes.many_dims import ManyDims
from ...fusion.compiled.arguments import bind
from ...fusion.team import library


class Fixed(NamedTuple):
    """Numbers of a row that a trace is for.

    Attributes:
        of: the trace. at: the place in the row. values: what stands there.
    """

    of: np.ndarray
    at: np.ndarray
    values: np.ndarray


class Evaluation:
    """What polynomials are for one row of numbers.

    Attributes:
        row: the numbers; to be written to before each `run`.
        met: for each table whether its numbers are those that it is for, and meet its conditions.
        values: the polynomials of all lists, one list after another.
    """

    def __init__(self, of: Evaluations) -> None:
        self._of = of
        self.row = np.zeros(of.size, np.int64)
        self.met = np.zeros(of.parts, np.int64)
        self.values = np.zeros(of.wanted, np.int64)
        self._block = None
        if library() is not None:
            arrays = {"row": self.row, "met": self.met, "values": self.values}
            numbers = np.ones(of.given["atoms"], np.int64)
            self._block = bind(
                library(), "opscope_polynomials", numbers=numbers, **of.given, **arrays
            )

    def run(self) -> None:
        """Find `met` and `values` for the row.

        Raises:
            OverflowError: one leaves 64 bits, or a number is no whole number of units.
        """
        if self._block is None:
            self.met, self.values = self._of.by_numpy(self.row)
            return
        self._block.run()
        if self._block.struct.wrong:
            raise OverflowError("a polynomial of sizes")


class Evaluations:
    """Evaluations of tables of polynomials over one row, each used by one thread at a time.

    Args:
        dims: the tables, and where in the row their sizes are. size: of the row.
        units: what numbers of the row are divided by, without a rest.
        fixed: by the numbers as they are in the row.

    Attributes:
        parts: the number of tables. wanted: of polynomials. size: of the row.
        given: what the function in C gets of the tables.
    """

    def __init__(self, dims: ManyDims, size: int, units: np.ndarray, fixed: Fixed) -> None:
        flat = dims.flat()
        self.size = size
        self.parts = dims.parts
        self.wanted = len(flat.sums) - flat.first_wanted
        self._dims = dims
        self._units = units
        self._fixed = fixed
        self._free: deque[Evaluation] = deque()
        sums = flat.sums
        given: dict[str, Any] = {
            **{"count": len(sums), "terms": len(sums.factors), "depth": len(sums.places)},
            **{"ends": np.cumsum(sums.counts), "factors": sums.factors},
            **{"places": sums.places.T, "atoms": dims.count, "size": size},
            **{"sized": len(dims.sized), "sized_numbers": dims.sized, "sized_at": dims.sized_at},
            **{"units": units[dims.sized_at], "parts": dims.parts, "fixed": len(fixed.at)},
            **{"fixed_at": fixed.at, "fixed_values": fixed.values, "fixed_of": fixed.of},
            **{"quotients": len(flat.quotients), "quotient_numbers": flat.quotients},
            **{"quotient_of": flat.quotient_of, "rests": flat.rests, "divisors": flat.divisors},
            **{"conditions": len(flat.signs), "first_condition": flat.first_condition},
            **{"signs": flat.signs, "condition_of": flat.condition_of},
            **{"wanted": self.wanted, "first_wanted": flat.first_wanted},
        }
        self.given = {
            name: np.ascontiguousarray(one, np.int64) if isinstance(one, np.ndarray) else one
            for name, one in given.items()
        }

    @contextmanager
    def lent(self) -> Iterator[Evaluation]:
        """An evaluation that no other thread has meanwhile."""
        try:
            one = self._free.pop()
        except IndexError:
            one = Evaluation(self)
        try:
            yield one
        finally:
            self._free.append(one)

    def by_numpy(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Evaluation`."""
        dims, fixed = self._dims, self._fixed
        sizes, rests = np.divmod(row, self._units)
        if rests.any():
            raise OverflowError("a size between whole units")
        numbers, met = dims.numbers(sizes)
        met[fixed.of[row[fixed.at] != fixed.values]] = False
        lists: Sequence[Any] = [one.values(numbers) for one in dims.values]
        return met.astype(np.int64), np.concatenate(lists)
