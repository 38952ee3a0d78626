"""Sizes that may vary: whole numbers that note what is decided by their values.

Code that computes with shapes runs for some sizes, its hints. Where these are `Dim`s, what comes
out are polynomials of them; each comparison, and each use as a plain number, is noted as a
condition. The results hold for all sizes that meet the conditions.

    dims = Dims()
    height, width = dims.size(0, 32), dims.size(1, 100)
    columns = (width - 3) // 2 + 1        # a Dim whose hint is 49
    columns > 4                           # True, a condition from now on
    dims.meets([32, 7])                   # False: these have 3 columns
    dims.value_of(columns)([32, 200])     # 99
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

_LEAST = 2
"""What varies is at least that: sizes of 0 and 1 mean too much to be any sizes."""
_VAST = 1 << 60
"""More than any number of a net: the bounds of 64 bits decide nothing."""
_Product = tuple[int, ...]
"""Numbers of atoms, sorted: what a term of a polynomial multiplies."""
Terms = dict[_Product, int]
"""A polynomial: what it sums, with the factor of each."""
Atom = int | tuple[Terms, Terms]
"""What polynomials are made of: a size, by its place, or a quotient, which is rounded down."""


class Dims:
    """Sizes that may vary, and the conditions on them.

    What polynomials are made of are atoms: the sizes themselves, and quotients that leave a rest.

    Args:
        hashes: whether a size may be a key, by its value; else it comes into no cache.

    Attributes:
        atoms: in order, of each the place of a size, or what is divided by what.
        conditions: polynomials, each with how it compares with 0: ">=", "==" or "!=".
        pinned: places of sizes of which one value alone meets the conditions.
    """

    def __init__(self, *, hashes: bool = True) -> None:
        self.hashes = hashes
        self.atoms: list[Atom] = []
        self.conditions: dict[Hashable, tuple[Terms, str]] = {}
        self._numbers: dict[Hashable, int] = {}  # of atoms
        self._hints: list[int] = []
        self._least: list[float] = []
        self.pinned: set[int] = set()
        self._meets: tuple[int, Callable[[Sequence[int]], Any]] | None = None

    def size(self, place: int, hint: int) -> Dim | int:
        """A size; where it is 0 or 1, a plain number.

        Args:
            place: among the sizes that `meets` takes.
        """
        if hint < _LEAST:
            return self.fixed(place, hint)
        size = self.unchecked(place, hint)
        self._note(_sum(size.terms, {(): _LEAST}, -1), ">=")
        return size

    def unchecked(self, place: int, hint: int) -> Dim:
        """A size, or an address, of which is known that it is at least 2."""
        return self._atom(place, place, hint, _LEAST)

    def fixed(self, place: int, value: int) -> int:
        """A size that does not vary."""
        self._note(_sum(self._atom(place, place, value, value).terms, {(): value}, -1), "==")
        return value

    def meets(self, sizes: Sequence[int]) -> bool:
        """Whether other sizes meet all conditions."""
        if self._meets is None or self._meets[0] != len(self.conditions):
            pairs = self.conditions.values()
            texts = [f"{self._text(terms)} {sign} 0" for terms, sign in pairs]
            self._meets = len(pairs), self._function(" and ".join([*texts, "True"]))
        try:
            return self._meets[1](sizes)
        except ZeroDivisionError:  # of a quotient, which is computed before the conditions
            return False

    def value_of(self, size: Any) -> Callable[[Sequence[int]], int]:
        """What gives a `Dim`, or plain number, for other sizes that meet the conditions."""
        return self._function(self._value_text(size))

    def values_of(self, sizes: Sequence[Any]) -> Callable[[Sequence[int]], tuple[int, ...]]:
        """As `value_of`, of several at once."""
        return self._function(f"({''.join([f'{self._value_text(one)}, ' for one in sizes])})")

    def _value_text(self, size: Any) -> str:
        return self._text(size.terms) if isinstance(size, Dim) else repr(int(size))

    def decided_by(self, places: Collection[int], more: Iterable[Any] = ()) -> bool:
        """Whether a condition, a quotient or one `more` number depends on some of the sizes."""
        numbers = {self._numbers[place] for place in places}
        deciding = [terms for terms, _ in self.conditions.values()]
        deciding += [one.terms for one in more if isinstance(one, Dim)]
        deciding += [terms for atom in self.atoms if not isinstance(atom, int) for terms in atom]
        products = {product for terms in deciding for product in terms}
        return not all(numbers.isdisjoint(product) for product in products)

    def _function(self, result: str) -> Callable[[Sequence[int]], Any]:
        lines = [f"a{number} := {self._atom_text(atom)}" for number, atom in enumerate(self.atoms)]
        text = f"lambda s: [{', '.join([*lines, result])}][-1]"
        return eval(text)  # noqa: S307 - text of our own

    def _atom(self, key: Hashable, atom: Atom, hint: int, least: float) -> Dim:
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self.atoms):
            self.atoms.append(atom)
            self._hints.append(hint)
            self._least.append(least)
        return Dim(self, {(number,): 1})

    # -- polynomials -------------------------------------------------------------------------------

    def made(self, terms: Terms) -> Dim | int:
        """A polynomial; a plain number where nothing varies."""
        terms = {product: factor for product, factor in terms.items() if factor}
        return Dim(self, terms) if any(terms) else terms.get((), 0)

    def hint(self, terms: Terms) -> int:
        """The value of a polynomial."""
        hints = self._hints
        return sum([math.prod([hints[n] for n in p], start=f) for p, f in terms.items()])

    def least(self, terms: Terms) -> float:
        """What a polynomial is at least."""
        return self._bound(terms, 1)

    def _bound(self, terms: Terms, sign: int) -> float:
        """What a polynomial times a sign is at least."""
        total = 0.0
        for product, factor in terms.items():
            term: float = sign * factor
            if product:
                if term < 0:
                    return -math.inf
                for number in product:
                    bound = self._least[number]
                    if bound < 0:
                        return -math.inf
                    term *= bound
            total += term
        return total

    def _note(self, terms: Terms, sign: str) -> None:
        """Note a condition."""
        self.conditions[frozenset(terms.items()), sign] = terms, sign

    def _atom_text(self, atom: Atom) -> str:
        if isinstance(atom, int):
            return f"s[{atom}]"
        rest, by = atom
        return f"({self._text(rest)}) // ({self._text(by)})"

    def _text(self, terms: Terms) -> str:
        return " + ".join(
            [" * ".join([str(factor), *(f"a{number}" for number in product)])
             for product, factor in sorted(terms.items())]
        )  # fmt: skip

    def is_true(self, terms: Terms, compare: Callable[[Any, Any], bool]) -> bool:
        """Whether a polynomial compares so with 0: by its bounds; else by value, a condition."""
        least = self._bound(terms, 1)
        if least > 0 or (compare is operator.lt and least >= 0):
            return compare(least, 0)
        if self._bound(terms, -1) > 0:
            return compare(-1, 0)
        truth = compare(self.hint(terms), 0)
        if abs(terms.get((), 0)) > _VAST:
            return truth
        if compare is operator.eq:
            self._note(terms, "==" if truth else "!=")
            if truth:
                self._pin(terms)
        else:  # what is below 0 is at most -1
            self._note(_sum({(): -1}, terms, -1) if truth else terms, ">=")
        return truth

    def _pin(self, terms: Terms) -> None:
        """Note the size that is a number wherever a polynomial is 0."""
        products = [product for product in terms if product]
        if len(products) == 1 and len(products[0]) == 1:
            atom = self.atoms[products[0][0]]
            if isinstance(atom, int):
                self.pinned.add(atom)

    def quotient(self, terms: Terms, by: Terms) -> Dim | int:
        """One polynomial by another, rounded down."""
        whole, rest = _divided_terms(terms, by)
        divisor = 0 if any(by) else by.get((), 0)
        sign = 1
        if divisor > 0 and rest and rest[max(rest)] < 0:  # -x // c is -((x + c - 1) // c)
            sign = -1
            other, rest = _divided_terms(_sum({(): divisor - 1}, rest, -1), by)
            whole = _sum(whole, other, -1)
        if not rest:
            return self.made(whole)
        least = self.least(rest)
        least = least // divisor if divisor > 0 and least > -math.inf else -math.inf
        made = rest, by
        atom = self._atom(self._atom_text(made), made, self.hint(rest) // self.hint(by), least)
        return self.made(_sum(whole, atom.terms, sign))


def _divided_terms(terms: Terms, by: Terms) -> tuple[Terms, Terms]:
    """Terms of a quotient that leave no rest, and what is still to be divided.

    Of (c V W + r) // (d V), where d divides c, the first are c / d W.
    """
    if len(by) > 1:
        return {}, terms
    ((product, divisor),) = by.items()
    whole: Terms = {}
    rest: Terms = {}
    for own, factor in terms.items():
        kept = _without(own, product)
        left = factor
        if kept is not None and (factor % divisor == 0 or not own):
            whole[kept], left = divmod(factor, divisor)
        if left:
            rest[own] = left
    if not any(rest) and not product and 0 <= rest.get((), 0) < divisor:
        rest = {}
    return whole, rest


def _without(product: _Product, other: _Product) -> _Product | None:
    """What is left of a product that is divided by another; None where that leaves a rest."""
    left = list(product)
    for number in other:
        if number not in left:
            return None
        left.remove(number)
    return tuple(left)


def terms_of(value: Any) -> Terms | None:
    """A whole number as a polynomial; None for anything else."""
    if isinstance(value, Dim):
        return value.terms
    return {(): int(value)} if isinstance(value, (int, np.integer)) else None


def hint_of(size: int | Dim) -> int:
    """The value that a size has here, which decides nothing."""
    return size.hint if isinstance(size, Dim) else size


def identity(size: int | Dim) -> Any:
    """A key that sizes share which are the same, whatever the sizes are that vary."""
    return frozenset(size.terms.items()) if isinstance(size, Dim) else size


def _sum(left: Terms, right: Terms, sign: int = 1) -> Terms:
    total = dict(left)
    for product, factor in right.items():
        total[product] = total.get(product, 0) + sign * factor
    return total


def _product(left: Terms, right: Terms) -> Terms:
    total: Terms = {}
    for a, factor in left.items():
        for b, other in right.items():
            both = tuple(sorted(a + b))
            total[both] = total.get(both, 0) + factor * other
    return total


class Dim:
    """A whole number that depends on sizes; see the module's text."""

    __slots__ = ("_dims", "terms")

    def __init__(self, dims: Dims, terms: Terms) -> None:
        self._dims = dims
        self.terms = terms

    @property
    def hint(self) -> int:
        """See `hint_of`."""
        return self._dims.hint(self.terms)

    def is_same(self, other: Any) -> bool:
        """Whether it is another size, whatever the sizes are."""
        return isinstance(other, Dim) and self.terms == other.terms

    # -- as a plain number: its value is a condition -----------------------------------------------

    def __index__(self) -> int:
        value = self._dims.hint(self.terms)
        self._dims.is_true(_sum(self.terms, {(): value}, -1), operator.eq)
        return value

    __int__ = __index__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        return np.array(int(self), dtype)

    def __float__(self) -> float:
        return float(int(self))

    def __hash__(self) -> int:
        if not self._dims.hashes:
            raise TypeError("a size that varies is no key")
        return hash(int(self))

    def __repr__(self) -> str:
        return str(self._dims.hint(self.terms))

    def __truediv__(self, other: Any) -> Any:
        return int(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / int(self)

    def __pow__(self, other: Any) -> Any:
        return int(self) ** other

    # -- comparisons: conditions, unless they are the same for all sizes ---------------------------

    def _compared(self, other: Any, compare: Callable[[Any, Any], bool], *, turned: bool) -> Any:
        terms = terms_of(other)
        if terms is None:
            if isinstance(other, float):
                return compare(other, int(self)) if turned else compare(int(self), other)
            return NotImplemented
        pair = (terms, self.terms) if turned else (self.terms, terms)
        difference = {product: f for product, f in _sum(*pair, -1).items() if f}
        if not any(difference):
            return compare(difference.get((), 0), 0)
        return self._dims.is_true(difference, compare)

    def __eq__(self, other: object) -> Any:
        return self._compared(other, operator.eq, turned=False)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, operator.lt, turned=False)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, operator.lt, turned=True)

    def __le__(self, other: Any) -> Any:
        greater = self.__gt__(other)
        return greater if greater is NotImplemented else not greater

    def __ge__(self, other: Any) -> Any:
        less = self.__lt__(other)
        return less if less is NotImplemented else not less

    def __bool__(self) -> bool:
        return not self.__eq__(0)

    # -- arithmetic --------------------------------------------------------------------------------

    def _computed(self, other: Any, compute: Callable[..., Any], *, turned: bool = False) -> Any:
        terms = terms_of(other)
        if terms is None:
            if not isinstance(other, float):
                return NotImplemented
            plain = _PLAIN[compute]
            return plain(other, int(self)) if turned else plain(int(self), other)
        return compute(self._dims, *((terms, self.terms) if turned else (self.terms, terms)))

    def __add__(self, other: Any) -> Any:
        return self._computed(other, _added)

    def __radd__(self, other: Any) -> Any:
        return self._computed(other, _added, turned=True)

    def __sub__(self, other: Any) -> Any:
        return self._computed(other, _subtracted)

    def __rsub__(self, other: Any) -> Any:
        return self._computed(other, _subtracted, turned=True)

    def __mul__(self, other: Any) -> Any:
        return self._computed(other, _multiplied)

    def __rmul__(self, other: Any) -> Any:
        return self._computed(other, _multiplied, turned=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._computed(other, _divided)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._computed(other, _divided, turned=True)

    def __mod__(self, other: Any) -> Any:
        return self._computed(other, _rest)

    def __rmod__(self, other: Any) -> Any:
        return self._computed(other, _rest, turned=True)

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Dim:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __floor__(self) -> Dim:
        return self

    __ceil__ = __trunc__ = __round__ = __floor__


def _added(dims: Dims, left: Terms, right: Terms) -> Any:
    return dims.made(_sum(left, right))


def _subtracted(dims: Dims, left: Terms, right: Terms) -> Any:
    return dims.made(_sum(left, right, -1))


def _multiplied(dims: Dims, left: Terms, right: Terms) -> Any:
    return dims.made(_product(left, right))


def _divided(dims: Dims, left: Terms, right: Terms) -> Any:
    return dims.quotient(left, right)


def _rest(dims: Dims, left: Terms, right: Terms) -> Any:
    return dims.made(left) - dims.quotient(left, right) * dims.made(right)


_PLAIN: dict[Any, Callable[[Any, Any], Any]] = {
    _added: operator.add,
    _subtracted: operator.sub,
    _multiplied: operator.mul,
    _divided: operator.floordiv,
    _rest: operator.mod,
}
"""What takes the place of arithmetic with polynomials where the other number is a float."""
