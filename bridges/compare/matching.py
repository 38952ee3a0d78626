"""Which layers of two models are the same: by name, then by values, then by their place and type.

A conversion may fold layers: an affine layer that holds the scales of the batch normalization
after it gives other numbers, and what comes after the two is equal again. `scaled_of` and
`made_up_for` tell such layers from those where models part ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial

import numpy as np

from .arrays import Apart, apart, apart_in_layouts, equal_in_a_layout, fit, scaled
from .layers import Layer

Layers = Mapping[str, Layer]

NAME, VALUES, PLACE = "name", "values", "place"

_TYPES = (
    ("relu", "relu|rectif"),  # Kaldi's are called RectifiedLinear
    ("linear", "affine|linear|conv|matmul|gemm|^times$|^fc$|tdnn|einsum"),
    ("sigmoid", "sigmoid"),
    ("tanh", "tanh"),
    ("log_softmax", "log_?softmax"),
    ("softmax", "softmax"),
    ("norm", "norm|renorm"),
    ("pool", "pool"),
    ("add", "^(add|plus|sum)$"),
    ("mul", "^(mul|elementtimes|product)$"),
    ("output", "^output$"),
)
"""Types of layers that have names of their own in each form; the first that fits counts."""
_GROWTH = 100
"""How many times the error of what it reads a layer gives on by rounding, at most."""
_PATTERNS = [(name, re.compile(pattern)) for name, pattern in reversed(_TYPES)]


@dataclass(frozen=True)
class Pair:
    """A layer in both models. `how` is NAME, VALUES or PLACE."""

    first: Layer
    other: Layer
    how: str
    apart: Apart


def type_of(kind: str) -> str:
    """The type of a layer in the words of all forms; "" for one that only some have."""
    word = kind.rpartition(".")[2].removesuffix("Component").lower()
    type_name = ""
    for name, pattern in _PATTERNS:
        if pattern.search(word):
            type_name = name
    return "log_softmax" if type_name == "softmax" and word.startswith("log") else type_name


def same_graph(first: Layers, other: Layers) -> bool:
    """Whether two models of one kind have the same layers: names, types and what they read."""
    return list(first) == list(other) and all(
        (layer.kind, layer.reads) == (other[name].kind, other[name].reads)
        for name, layer in first.items()
    )


def match(first: Layers, other: Layers, *, alike: bool, tolerance: float) -> list[Pair]:
    """The layers that both have, in the order of the first.

    Args:
        alike: whether layers of both have the same layout; others are turned until they fit.
        tolerance: up to which values are the same.
    """
    return _Matching(first, other, alike, tolerance).pairs()


class _Matching:
    def __init__(self, first: Layers, other: Layers, alike: bool, tolerance: float) -> None:
        self._first = first
        self._other = other
        self._tolerance = tolerance
        self._alike = alike
        self._apart: Callable[[np.ndarray, np.ndarray], Apart]
        self._apart = apart if alike else partial(apart_in_layouts, enough=tolerance)
        self._pairs: dict[str, Pair] = {}
        self._taken: set[str] = set()
        self._numbers = {name: number for number, name in enumerate(other)}

    def pairs(self) -> list[Pair]:
        """See `match`."""
        for name in self._first.keys() & self._other.keys():
            if self._alike or fit(self._first[name].value, self._other[name].value):
                self._pair(name, name, NAME)
        self._outputs()
        self._by_values()
        self._by_place()
        return [self._pairs[name] for name in self._first if name in self._pairs]

    def _pair(self, name: str, other: str, how: str) -> None:
        one, two = self._first[name], self._other[other]
        self._pairs[name] = Pair(one, two, how, self._apart(one.value, two.value))
        self._taken.add(other)

    def _outputs(self) -> None:
        """Outputs in order, where neither has a name that the other one has."""
        ends = [
            [name for name, layer in layers.items() if layer.output and name not in gone]
            for layers, gone in ((self._first, self._pairs), (self._other, self._taken))
        ]
        if len(ends[0]) == len(ends[1]):
            for name, other in zip(*ends, strict=True):
                if self._alike or fit(self._first[name].value, self._other[other].value):
                    self._pair(name, other, PLACE)

    def _free(self) -> tuple[list[str], list[str]]:
        """Layers of both that have no partner."""
        first = [name for name in self._first if name not in self._pairs]
        return first, [name for name in self._other if name not in self._taken]

    def _by_values(self) -> None:
        """Layers whose numbers are the same. A name may stand for something else in another form,
        a layer before a scale is applied say; there equal values are the better partner, for both
        layers that have the name."""
        wrong = [
            name
            for name, pair in self._pairs.items()
            if not self._alike and pair.how == NAME and not self._is_same(pair.apart)
        ]
        free, rest = self._free()
        owners = {self._pairs[name].other.name: name for name in wrong}
        there = [name for name in (*rest, *owners) if _tells(self._other[name].value)]
        means = {name: _mean(self._other[name].value) for name in there}
        for name in [each for each in self._first if each in {*free, *wrong}]:
            value = self._first[name].value
            if not _tells(value):
                continue
            mean = _mean(value)
            most = _largest(value) * self._tolerance
            for other in there:
                two = self._other[other].value
                if value.size == two.size and not abs(mean - means[other]) <= most:
                    continue
                if self._alike and value.shape != two.shape:
                    continue
                if equal_in_a_layout(value, two, self._tolerance):
                    if name in self._pairs:
                        left = self._pairs[name].other.name
                        self._taken.discard(left)
                        owners.pop(left, None)
                    if other in owners:  # whose name alone is the same
                        del self._pairs[owners.pop(other)]
                    self._pair(name, other, VALUES)
                    there.remove(other)
                    break

    def _is_same(self, measured: Apart) -> bool:
        return measured.largest <= self._tolerance

    def _by_place(self) -> None:
        """Layers of one type and size that stand in the same order between partners."""
        free, rest = self._free()
        gaps: dict[int, tuple[list[str], list[str]]] = {}
        order = list(self._first)
        after = -1
        gap_of = dict[str, int]()
        for name in order:
            if name in self._pairs:
                after = max(after, self._numbers[self._pairs[name].other.name])
            gap_of[name] = after
        ends = sorted(set(gap_of.values()))
        for name in free:
            gaps.setdefault(gap_of[name], ([], []))[0].append(name)
        for name in rest:
            number = self._numbers[name]
            before = max((end for end in ends if end < number), default=-1)
            gaps.setdefault(before, ([], []))[1].append(name)
        for mine, theirs in gaps.values():
            self._align(mine, theirs)

    def _align(self, mine: list[str], theirs: list[str]) -> None:
        a = [self._sign(self._first[name]) for name in mine]
        b = [self._sign(self._other[name]) for name in theirs]
        for block in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
            for at in range(block.size):
                name, other = mine[block.a + at], theirs[block.b + at]
                known = bool(a[block.a + at][0])
                if known and (
                    self._alike or fit(self._first[name].value, self._other[other].value)
                ):
                    self._pair(name, other, PLACE)

    def _sign(self, layer: Layer) -> tuple[str, tuple[int, ...]]:
        """Type and size of a layer: its whole shape, or in another form the number of columns."""
        if self._alike:
            return layer.kind, layer.value.shape[1:]
        return type_of(layer.kind), ()


def _mean(value: np.ndarray) -> float:
    return float(value.astype(np.float64).mean())


def _largest(value: np.ndarray) -> float:
    """What an error is relative to, at most."""
    return max(1.0, float(np.abs(value.astype(np.float64)).max()))


def _tells(value: np.ndarray) -> bool:
    """Whether equal values mean the same layer: floats that are not all equal."""
    if value.size < 2 or value.dtype.kind not in "fV":
        return False
    flat = value.reshape(-1)
    return bool((flat != flat[0]).any())


def scaled_of(pairs: Iterable[Pair], tolerance: float) -> set[str]:
    """The layers of the first model that differ by positive factors of their columns alone.

    Also those that differ by offsets as well, a ReLU and the layer that it reads: a ReLU after
    another offset would cut elsewhere, so a conversion has put a whole normalization before it.
    """
    listed = {pair.first.name: pair for pair in pairs if not pair.apart.largest <= tolerance}

    def holds(pair: Pair, offsets: bool) -> bool:
        return scaled(pair.first.value, pair.other.value, tolerance, offsets)

    names = set[str]()
    for name, pair in listed.items():
        if pair.first.output:
            continue
        if holds(pair, False):
            names.add(name)
        elif "relu" in (type_of(pair.first.kind), type_of(pair.other.kind)) and holds(pair, True):
            before = [listed[read] for read in pair.first.reads if read in listed]
            if before and all(holds(one, True) for one in before):
                names |= {name, *(one.first.name for one in before)}
    return names


def rounded_in(pairs: Iterable[Pair], first: Layers, tolerance: float) -> set[str]:
    """The layers of the first model that differ by rounding alone.

    All that reads them, near or far, is equal again, and they add no error of their own that stands
    out among those before: a saturated sigmoid hides a weight that changed, and no rounding does
    what that one does.
    """
    listed = {pair.first.name: pair for pair in pairs}

    def stands_out(pair: Pair) -> bool:
        read = [listed[name] for name in pair.first.reads if name in listed]
        before = max((_distance(one) for one in read), default=0.0)
        scale = max(_largest(one.first.value) for one in (pair, *read))
        return not _distance(pair) <= max(_GROWTH * before, tolerance * scale)

    hidden = made_up_for(listed.values(), first, tolerance)
    return {name for name in hidden if not stands_out(listed[name])}


def _distance(pair: Pair) -> float:
    """The largest absolute error of a layer."""
    one, two = (layer.value.astype(np.float64) for layer in (pair.first, pair.other))
    if one.shape != two.shape:
        return np.inf
    return float(np.abs(one - two).max(initial=0.0))


def made_up_for(pairs: Iterable[Pair], first: Layers, tolerance: float) -> set[str]:
    """The layers of the first model that differ, while all that reads them, near or far, is equal
    again, outputs included."""
    listed = list(pairs)
    differs = {pair.first.name for pair in listed if not pair.apart.largest <= tolerance}
    same = {pair.first.name for pair in listed} - differs
    reaches = {name for name, layer in first.items() if layer.output and name not in same}
    waiting = list(reaches)  # backwards from outputs that may differ, through all that is not equal
    while waiting:
        for read in first[waiting.pop()].reads:
            if read in first and read not in same and read not in reaches:
                reaches.add(read)
                waiting.append(read)
    return differs - reaches
