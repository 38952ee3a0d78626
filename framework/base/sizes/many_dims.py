"""Polynomials of sizes that vary, evaluated by NumPy: for all steps of a plan at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..python.cached import cached_property
from .dims import Dims, Terms, terms_of

_MOST = 2.0**58
"""Terms of a polynomial that are larger might leave the 64 bits of their sum."""
_WHOLE = np.dtype(np.int64)


class Sums:
    """Polynomials over a row of numbers, of which the first is 1, or over a matrix of such columns.

    Args:
        factors [terms], places [depth, terms]: each term is a factor times the numbers at its
            places.
        counts [polynomials]: terms of each, which follow one another.
    """

    def __init__(self, factors: np.ndarray, places: np.ndarray, counts: np.ndarray) -> None:
        self.factors = factors
        self.places = places
        self.counts = counts

    # Only where NumPy evaluates them: parts of larger lists are never evaluated alone.
    @cached_property
    def _degrees(self) -> np.ndarray:
        return np.count_nonzero(self.places, axis=0)

    @cached_property
    def _largest(self) -> list[tuple[int, int]]:
        degrees = self._degrees
        return [
            (degree, int(np.abs(self.factors[degrees == degree]).max()))
            for degree in np.unique(degrees).tolist()
        ]

    @cached_property
    def _multiplied(self) -> np.ndarray:
        return np.unique(self.places[:, self._degrees > 1])

    @classmethod
    def of(cls, polynomials: Sequence[Terms]) -> Sums:
        """Polynomials of atoms, which come after the 1."""
        terms = [term for one in polynomials for term in (one or {(): 0}).items()]
        depth = max([1, *[len(product) for product, _ in terms]])
        rows = [[*(n + 1 for n in product), *[0] * (depth - len(product))] for product, _ in terms]
        factors = np.array([factor for _, factor in terms], _WHOLE)
        places = np.array(rows, np.intp).reshape(-1, depth).T
        return cls(factors, places, np.array([len(one) or 1 for one in polynomials], np.intp))

    @classmethod
    def side_by_side(cls, parts: Sequence[Sums], shifts: Sequence[int]) -> Sums:
        """Several as one, over one row, in which the numbers of each come so much later."""
        depth = max([1, *[len(one.places) for one in parts]])
        width = sum([len(one.factors) for one in parts])
        places = np.zeros((depth, width), np.intp)
        at = 0
        for one, shift in zip(parts, shifts, strict=True):
            own = one.places
            end = at + own.shape[1]
            places[: len(own), at:end] = own + shift * (own > 0)
            at = end
        factors, counts = (
            np.concatenate([getattr(one, name) for one in parts]) for name in ("factors", "counts")
        )
        return cls(factors, places, counts)

    def __len__(self) -> int:
        return len(self.counts)

    def values(self, numbers: np.ndarray) -> np.ndarray:
        """Of all polynomials.

        Raises:
            OverflowError: one might be too large.
        """
        if not len(self):
            return np.zeros((0, *numbers.shape[1:]), _WHOLE)
        if not self._surely_fits(numbers):
            if np.abs(self._terms(numbers.astype(np.float64))).max() > _MOST:
                raise OverflowError("a polynomial of sizes")
        terms = self._terms(numbers)
        return np.add.reduceat(terms, np.cumsum(self.counts) - self.counts)

    def _surely_fits(self, numbers: np.ndarray) -> bool:
        """Whether no term is too large, by the largest of the numbers: those that are multiplied
        are sizes, much smaller than addresses."""
        alone = float(np.abs(numbers).max())
        largest = float(np.abs(numbers[self._multiplied]).max()) if len(self._multiplied) else 0.0
        return all(
            factor * (alone if degree == 1 else largest**degree) <= _MOST
            for degree, factor in self._largest
        )

    def _terms(self, numbers: np.ndarray) -> np.ndarray:
        # Transposed: the factors are of the first axis.
        terms = (self.factors * numbers[self.places[0]].T).T
        for places in self.places[1:]:
            terms *= numbers[places]
        return terms


class Table:
    """The atoms and conditions of a `Dims`, and polynomials of these, as arrays.

    Args:
        values: lists of polynomials and plain numbers.

    Attributes:
        count: of atoms. sized: numbers of those that are sizes. places: of these sizes.
        levels: quotients; a level's depend on lower ones: numbers of the atoms, what is
            divided by what.
        conditions: polynomials. signs: how each compares with 0, see `Dims`.
        values: those that are given.
    """

    def __init__(self, dims: Dims, *values: Sequence[Any]) -> None:
        self.count = len(dims.atoms)
        sized = [(n, atom) for n, atom in enumerate(dims.atoms, 1) if isinstance(atom, int)]
        self.sized = np.array([number for number, _ in sized], np.intp)
        self.places = np.array([place for _, place in sized], np.intp)
        level_of = [0]
        levels: list[list[tuple[int, Terms, Terms]]] = []
        for number, atom in enumerate(dims.atoms, 1):
            if isinstance(atom, int):
                level_of.append(0)
                continue
            used = [n for terms in atom for product in terms for n in product]
            level = max([level_of[n + 1] for n in used])
            level_of.append(level + 1)
            if level == len(levels):
                levels.append([])
            levels[level].append((number, *atom))
        self.levels = [
            (np.array(numbers, np.intp), Sums.of(rests), Sums.of(divisors))
            for numbers, rests, divisors in (zip(*level, strict=True) for level in levels)
        ]
        self.conditions = Sums.of([terms for terms, _ in dims.conditions.values()])
        self.signs = np.array([sign for _, sign in dims.conditions.values()], "U2")
        self.values = [Sums.of([terms_of(one) or {} for one in many]) for many in values]


class Flat(NamedTuple):
    """All polynomials of a `ManyDims` in one list.

    Attributes:
        sums: the polynomials of quotients, of conditions, and of `values`, in this order.
        quotients: the atoms that are some, in an order in which each depends on earlier ones.
        quotient_of, condition_of: the numbers of their tables.
        rests, divisors: of the quotients, numbers of polynomials.
        signs: how a condition compares with 0: 0 is at least, 1 equal, 2 other.
    """

    sums: Sums
    quotients: np.ndarray
    quotient_of: np.ndarray
    rests: np.ndarray
    divisors: np.ndarray
    first_condition: int
    signs: np.ndarray
    condition_of: np.ndarray
    first_wanted: int


class ManyDims:
    """The tables of several `Dims` as one.

    Args:
        tables: their lists of values are side by side in `values`.
        places: of each the places of its sizes in one row of the sizes of all.

    Attributes:
        parts: the number of tables. count: of atoms, and the 1 before them.
        sized: the atoms that are sizes. sized_at: where each is in the row.
    """

    def __init__(self, tables: Sequence[Table], places: Sequence[np.ndarray]) -> None:
        shifts = np.cumsum([0, *[one.count for one in tables]]).tolist()
        self.count = 1 + shifts.pop()
        pairs = list(zip(tables, shifts, strict=True))
        self.sized = np.concatenate([one.sized + shift for one, shift in pairs])
        self.sized_at = np.concatenate(
            [own[one.places] for one, own in zip(tables, places, strict=True)]
        )
        self.parts = len(tables)
        self._levels: list[tuple[np.ndarray, Sums, Sums, np.ndarray]] = []
        for level in range(max([len(one.levels) for one in tables])):
            own = [
                (n, *one.levels[level]) for n, one in enumerate(tables) if len(one.levels) > level
            ]
            ahead = [shifts[part] for part, *_ in own]
            numbers = [one + shift for (_, one, _, _), shift in zip(own, ahead, strict=True)]
            self._levels.append(
                (
                    np.concatenate(numbers),
                    Sums.side_by_side([rest for *_, rest, _ in own], ahead),
                    Sums.side_by_side([by for *_, by in own], ahead),
                    np.repeat([part for part, *_ in own], [len(one) for _, one, *_ in own]),
                )
            )
        self._conditions = Sums.side_by_side([one.conditions for one in tables], shifts)
        signs = np.concatenate([one.signs for one in tables])
        self._at_least = signs == ">="
        self._equal = signs == "=="
        self._of = np.repeat(range(len(tables)), [len(one.conditions) for one in tables])
        lists = zip(*[one.values for one in tables], strict=True)
        self.values = [Sums.side_by_side(many, shifts) for many in lists]

    def numbers(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers that `values` are of, and for each of the tables whether its conditions are
        met.

        Raises:
            OverflowError: one might be too large.
        """
        cases = sizes.shape[1:]
        numbers = np.ones((self.count, *cases), _WHOLE)
        self.put(sizes, numbers)
        met = np.ones((self.parts, *cases), bool)
        for at, rest, by, parts in self._levels:
            divisors = by.values(numbers)
            if not divisors.all():
                self._refuse(met, parts, divisors == 0)
                divisors[divisors == 0] = 1
            numbers[at] = rest.values(numbers) // divisors
        values = self._conditions.values(numbers)
        holds = np.where(self._at_least, values.T >= 0, (values.T == 0) == self._equal).T
        self._refuse(met, self._of, ~holds)
        return numbers, met

    def flat(self) -> Flat:
        """All polynomials in one list."""
        parts: list[Sums] = []
        count = 0
        rests: list[int] = []
        divisors: list[int] = []
        for at, rest, by, _ in self._levels:
            parts += [rest, by]
            rests += range(count, count + len(at))
            divisors += range(count + len(at), count + 2 * len(at))
            count += 2 * len(at)
        every = [*parts, self._conditions, *self.values]
        none = np.zeros(0, np.intp)
        return Flat(
            Sums.side_by_side(every, [0] * len(every)),
            np.concatenate([none, *[at for at, *_ in self._levels]]),
            np.concatenate([none, *[of for *_, of in self._levels]]),
            np.array(rests, _WHOLE),
            np.array(divisors, _WHOLE),
            count,
            np.where(self._at_least, 0, np.where(self._equal, 1, 2)),
            self._of,
            count + len(self._conditions),
        )

    @staticmethod
    def _refuse(met: np.ndarray, parts: np.ndarray, wrong: np.ndarray) -> None:
        """Note of which tables something is wrong, in which cases."""
        at, *cases = wrong.nonzero()
        met[(parts[at], *cases)] = False

    def put(self, sizes: np.ndarray, numbers: np.ndarray) -> None:
        """Put sizes on which no condition and no quotient depends, into the numbers."""
        numbers[self.sized] = sizes[self.sized_at]
