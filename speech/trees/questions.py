"""Questions about phones and classes of states: their file, lists of phones, questions of clusters.

Source: Kaldi's `tree/build-tree-questions.cc`, `tree/build-tree.cc`, `util/simple-io-funcs.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import read_text
from ...kaldi.files.context_dependency import PDF_CLASS
from ...kaldi.files.kaldi_io import Reader, Writer
from .clustering import hierarchy, k_means
from .gaussians import sums_by
from .statistics import TreeStats

PhoneSets = list[list[int]]


@dataclass(frozen=True)
class KeyQuestions:
    """What may be asked about a key.

    Attributes:
        sets: the values that each question says yes to, rising.
        iterations: how often values are moved between yes and no at each node; 0: questions stay.
        closest: 2, as files hold it.
    """

    sets: tuple[tuple[int, ...], ...]
    iterations: int
    closest: int = 2


@dataclass(frozen=True)
class Questions:
    """Questions by key: places in the window, and -1, the class of a state."""

    by_key: dict[int, KeyQuestions]

    @classmethod
    def read(cls, reader: Reader) -> Questions:
        """Read Kaldi's file of questions, such as `questions.qst`.

        Raises:
            FormatError: it is damaged.
        """
        found: dict[int, KeyQuestions] = {}
        reader.expect_token("<Questions>")
        while reader.expect_token("<Key>", "</Questions>") == "<Key>":
            key = reader.read_int32()
            reader.expect_token("<QuestionsForKey>")
            count = reader.read_int32()
            reader.check_left(count, "questions")
            start = reader.offset
            sets = tuple(tuple(reader.read_int_vector().tolist()) for _ in range(count))
            if any(list(values) != sorted(values) or values[:1] < (0,) != () for values in sets):
                raise reader.error("a question whose values do not rise, or are negative", start)
            reader.expect_token("<RefineClustersOptions>")
            found[key] = KeyQuestions(sets, reader.read_int32(), reader.read_int32())
            reader.expect_token("</RefineClustersOptions>")
            reader.expect_token("</QuestionsForKey>")
        return cls(found)

    def write_to(self, writer: Writer) -> None:
        """Write them as Kaldi does."""
        writer.write_token("<Questions>")
        for key in sorted(self.by_key):
            questions = self.by_key[key]
            writer.write_token("<Key>")
            writer.write_int32(key)
            writer.write_token("<QuestionsForKey>")
            writer.write_int32(len(questions.sets))
            for values in questions.sets:
                writer.write_int_vector(np.array(values, np.int32))
            writer.write_token("<RefineClustersOptions>")
            writer.write_int32(questions.iterations)
            writer.write_int32(questions.closest)
            writer.write_token("</RefineClustersOptions>")
            writer.write_token("</QuestionsForKey>")
        writer.write_token("</Questions>")


def questions_of(sets: PhoneSets, width: int, num_classes: int, iterations: int) -> Questions:
    """Questions about each place of a window, and about the class: is it below a number."""
    phones = KeyQuestions(tuple(sorted({tuple(phones) for phones in sets})), iterations)
    classes = tuple(tuple(range(least)) for least in range(1, num_classes))
    by_key = {place: phones for place in range(width)}
    return Questions({PDF_CLASS: KeyQuestions(classes, iterations), **by_key})


def read_integer_lists(path: str) -> PhoneSets:
    """The integers of each line of a text file.

    Raises:
        FormatError: a line holds something else.
    """
    lists = []
    for number, line in enumerate(read_text(path, pipes=True).splitlines(), 1):
        try:
            lists.append([int(word) for word in line.split()])
        except ValueError:
            raise FormatError(f"{path}:{number}: no integers: {line!r}") from None
    return lists


def read_phone_sets(path: str) -> PhoneSets:
    """The phones of each line, sorted. Raises FormatError: a line holds others, or one twice."""
    sets = [sorted(phones) for phones in read_integer_lists(path)]
    for number, phones in enumerate(sets, 1):
        if len(set(phones)) != len(phones):
            raise FormatError(f"{path}:{number}: a phone twice")
    return sets


def check_disjoint(sets: Iterable[Sequence[int]], path: str) -> None:
    """Raises FormatError: there are none, one is empty, or a phone is in two of them."""
    seen: set[int] = set()
    for phones in sets:
        if not phones or min(phones) <= 0 or seen & set(phones):
            raise FormatError(f"{path}: a set without phones, a phone twice, or one below 1")
        seen |= set(phones)
    if not seen:
        raise FormatError(f"{path}: no phones")


def sums_of_sets(
    stats: TreeStats, sets: PhoneSets, classes: Sequence[int], central: int
) -> np.ndarray:
    """The statistics of each set of phones, of states of some classes: [sets, 1 + 2 * dim].

    Raises:
        FormatError: there are none of such states.
    """
    kept = np.isin(stats.required(PDF_CLASS), classes)
    if not kept.any():
        raise FormatError(
            f"no statistics of states of the classes {':'.join(map(str, classes))}, which"
            " --pdf-class-list names"
        )
    retained = stats.chosen(kept)
    values = retained.required(central)
    size = max(int(values.max()), *(max(phones) for phones in sets)) + 1
    sums = sums_by(values, retained.rows, size)
    totals = []
    for phones in sets:
        total = sums[phones[0]].copy()
        for phone in phones[1:]:
            total += sums[phone]
        totals.append(total)
    return np.array(totals)


def clustered_questions(
    sums: np.ndarray, sets: PhoneSets, floor: float, rand: Callable[[], int]
) -> PhoneSets:
    """Sets of phones to ask about: the parts of a hierarchy from the top, then the sets themselves.

    Args:
        sums: the statistics of each set, [sets, 1 + 2 * dim]. floor: least variance.
        rand: a number of C's `rand()`.

    Raises:
        FormatError: no set has statistics of its own.
    """
    assigned, parents = hierarchy(sums, floor, rand)
    if len(parents) == 1:
        raise FormatError("the statistics of all sets of phones are alike: none can be split")
    raw: list[list[int]] = [[] for _ in parents]
    for cluster, phones in zip(assigned.tolist(), sets, strict=True):
        raw[cluster] += phones
    root = len(parents) - 1
    for node, parent in enumerate(parents):
        raw[node].sort()
        if parent < root:  # the root, all phones, is no question
            raw[parent] += raw[node]
    found = dict.fromkeys(tuple(phones) for phones in [*reversed(raw), *sets])
    return [list(phones) for phones in found if phones]


def classes_of(
    sums: np.ndarray, sets: PhoneSets, count: int, floor: float, rand: Callable[[], int]
) -> tuple[np.float32, PhoneSets]:
    """Sets of phones in classes by k-means: how much the objective grew, and the classes."""
    gain, assigned = k_means(sums, count, floor, rand)
    classes: PhoneSets = [[] for _ in range(count)]
    for cluster, phones in zip(assigned.tolist(), sets, strict=True):
        classes[cluster] += phones
    return gain, [sorted(phones) for phones in classes]
