"""Trees that no statistics made: roots of sets of phones, monophones, all biphones.

Source: Kaldi's `tree/build-tree-utils.cc` (`GetStubMap`), `gmmbin/gmm-init-biphone.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as counter

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import read_text
from ...kaldi.files.context_dependency import (
    PDF_CLASS,
    ContextDependency,
    EventMap,
    Leaf,
    Split,
    Table,
    with_leaves,
)
from ...kaldi.files.transition_model import HmmState
from .questions import PhoneSets


@dataclass(frozen=True)
class Roots:
    """Sets of phones whose states have a tree in common.

    Attributes:
        phones: each set, rising. shared: whether the states of a set have one tree, or one each.
        split: whether the tree may grow.
    """

    phones: PhoneSets
    shared: list[bool]
    split: list[bool]

    @classmethod
    def read(cls, path: str) -> Roots:
        """Read Kaldi's `roots.int`: lines of `shared split 1 2 3` or `not-shared not-split 4`.

        Raises:
            FormatError: a line is something else, or there are none.
        """
        found = cls([], [], [])
        for number, line in enumerate(read_text(path, pipes=True).splitlines(), 1):
            shared, split, *phones = line.split() or ["", ""]
            known = shared in ("shared", "not-shared") and split in ("split", "not-split")
            if not known or not phones or not all(phone.isdecimal() for phone in phones):
                raise FormatError(
                    f"{path}:{number}: `shared` or `not-shared`, `split` or `not-split` and the"
                    f" numbers of phones are wanted, but this is {line!r}"
                )
            found.phones.append(sorted(map(int, phones)))
            found.shared.append(shared == "shared")
            found.split.append(split == "split")
        return found


def pdf_classes(
    phones: Iterable[int], entry_of: Sequence[int], entries: Sequence[Sequence[HmmState]]
) -> dict[int, int]:
    """How many classes of outputs the states of each phone have, by a topology."""
    return {
        phone: max(max(s.forward, s.self_loop) for s in entries[entry_of[phone]]) + 1
        for phone in phones
    }


def roots_tree(
    central: int, sets: PhoneSets, shared: Sequence[bool], classes: Mapping[int, int]
) -> EventMap:
    """The tree of the roots: a leaf for each set, or for each class of state of a set.

    Args:
        central: the place of the phone that is asked about.
        shared: whether a set has a single leaf. classes: how many classes a phone has.

    Raises:
        FormatError: a phone is none of the topology.
    """
    numbers = counter()

    def of_set(i: int) -> EventMap:
        if shared[i]:
            return Leaf(next(numbers))
        size = max(_classes_of(phone, classes) for phone in sets[i])
        return Table(PDF_CLASS, tuple(Leaf(next(numbers)) for _ in range(size)))

    def of_range(begin: int, end: int) -> EventMap | None:
        """The tree of these sets, unless they are to be halved."""
        own = sets[begin:end]
        if len(own) == 1:
            return of_set(begin)
        highest = max(max(phones) for phones in own)
        if max(map(len, own)) > 1 or len(own) > 2 * highest:
            return None
        parts = {sets[i][0]: of_set(i) for i in range(begin, end)}
        return Table(central, tuple(parts.get(phone) for phone in range(highest + 1)))

    # Halves are taken from the left, since leaves are numbered on the way.
    done: list[EventMap] = []
    waiting: list[tuple[int, int, bool]] = [(0, len(sets), False)]
    while waiting:
        begin, end, below = waiting.pop()
        middle = begin + (end - begin) // 2
        if below:
            no = done.pop()
            values = frozenset(phone for phones in sets[begin:middle] for phone in phones)
            done.append(Split(central, values, done.pop(), no))
        elif (part := of_range(begin, end)) is not None:
            done.append(part)
        else:
            waiting += [(begin, end, True), (middle, end, False), (begin, middle, False)]
    return done[0]


def _classes_of(phone: int, classes: Mapping[int, int]) -> int:
    if not classes.get(phone):
        raise FormatError(f"the topology has no states with outputs for phone {phone}")
    return classes[phone]


def monophone_tree(sets: PhoneSets, classes: Mapping[int, int]) -> ContextDependency:
    """The tree of monophones: a leaf for each class of state of each set of phones."""
    return ContextDependency(1, 0, roots_tree(0, sets, [False] * len(sets), classes))


@dataclass(frozen=True)
class PhoneCounts:
    """How often phones, and pairs of phones, occur.

    Attributes:
        single: by phone. pairs: by (left, right).
        least_single, least_pair: a pair that is rarer than this has the outputs of its right phone;
            a phone that is not more frequent than this has the outputs of all such phones.
    """

    single: Mapping[int, int]
    pairs: Mapping[tuple[int, int], int]
    least_single: int
    least_pair: int

    @classmethod
    def read(cls, path: str, least_single: int, least_pair: int) -> PhoneCounts:
        """Read lines of `<phone> <count>` and `<left-phone> <right-phone> <count>`.

        Raises:
            FormatError: a line is something else.
        """
        single: dict[int, int] = {}
        pairs: dict[tuple[int, int], int] = {}
        for number, line in enumerate(read_text(path, pipes=True).splitlines(), 1):
            words = line.split()
            if len(words) not in (2, 3) or not all(word.isdecimal() for word in words):
                raise FormatError(f"{path}:{number}: phones and a count are wanted: {line!r}")
            *phones, count = map(int, words)
            if len(phones) == 2:
                pairs[phones[0], phones[1]] = count
            else:
                single[phones[0]] = count
        return cls(single, pairs, least_single, least_pair)


def biphone_tree(
    sets: PhoneSets, alone: Sequence[int], classes: int, counts: PhoneCounts | None
) -> ContextDependency:
    """The tree of all pairs of sets of phones, with outputs of their own.

    Args:
        sets: without the phones of `alone`. alone: phones whose left neighbor does not count.
        classes: how many classes of outputs each phone has, 1 or 2.
        counts: which pairs are too rare for outputs of their own; looked at with 2 classes alone,
            as Kaldi does.
    """
    numbers = counter()
    if classes == 1:
        counts = None

    def fresh() -> EventMap:
        """Leaves of two classes, or a single one."""
        if classes == 1:
            return Leaf(next(numbers))
        return Table(PDF_CLASS, (Leaf(next(numbers)), Leaf(next(numbers))))

    by_phone: dict[int, EventMap] = {}
    for phone in alone:
        states = tuple(Leaf(next(numbers)) for _ in range(classes))
        by_phone[phone] = Table(PDF_CLASS, states)
    rare: dict[int, EventMap] = {}  # of all rare phones
    for right in sets:
        begins = fresh()
        left_of: dict[int, EventMap] = {0: begins}
        if classes == 2:
            left_of |= dict.fromkeys(alone, begins)
        single: dict[int, EventMap] = {}
        for left in sets:
            part = _of_pair(left[0], right[0], counts, fresh, single, rare)
            left_of |= dict.fromkeys(left, part)
        by_phone |= dict.fromkeys(right, _table(0, left_of))
    return ContextDependency(2, 1, _table(1, by_phone))


def _of_pair(
    left: int,
    right: int,
    counts: PhoneCounts | None,
    fresh: Callable[[], EventMap],
    single: dict[int, EventMap],
    rare: dict[int, EventMap],
) -> EventMap:
    """The outputs of a pair: its own, or its right phone's, or the outputs of all rare phones."""
    if counts is None or counts.pairs.get((left, right), 0) >= counts.least_pair:
        return fresh()
    shared = single if counts.single.get(right, 0) > counts.least_single else rare
    if not shared:
        shared[0] = fresh()
    return shared[0]


def _table(key: int, parts: Mapping[int, EventMap]) -> Table:
    return Table(key, tuple(parts.get(value) for value in range(max(parts, default=-1) + 1)))


def renumbered(tree: EventMap, leaves: Iterable[int]) -> tuple[EventMap, int]:
    """A tree with its leaves, which are these, numbered from 0 in their order, and their number."""
    new = {leaf: Leaf(number) for number, leaf in enumerate(sorted(set(leaves)))}
    return with_leaves(tree, new.__getitem__), len(new)
