"""Lists of words, with their classes or without.

Source: CNTK's `LMSequenceReader/SequenceReader.cpp` (`ReadClassInfo`) and
`LUSequenceReader/LUSequenceReader.cpp` (`ReadLabelInfo`, `LoadWordMapping`, `ChangeMaping`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from ....framework.base.errors import FormatError, nearest
from ....framework.base.files.atomic import PathLike
from ....framework.base.untrusted.values import shown
from ...base.text import read_text

_LARGEST = 1 << 31


@dataclass(eq=False)
class Classes:
    """Classes of words; the words of a class follow each other.

    Attributes:
        of: the class of each word, int64, [words].
        begin, end: the words of the class of each word, from and to, int64, [words].
    """

    of: np.ndarray
    begin: np.ndarray
    end: np.ndarray

    @classmethod
    def from_numbers(cls, path: PathLike, numbers: list[int]) -> Classes:
        """From the class of each word.

        Raises:
            FormatError: a class comes after a higher one, or is negative.
        """
        array = np.array(numbers, np.int64)
        if len(array) and (array.min() < 0 or np.any(np.diff(array) < 0)):
            word = int(np.argmax(np.diff(array, prepend=0) < 0))
            raise FormatError(f"{path}: word {word} has class {numbers[word]}; classes must ascend")
        left, right = (np.searchsorted(array, array, side=side) for side in ("left", "right"))
        return cls(array, left, right)

    def rows(self, words: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Word, class, and where the class begins and ends, of each word, [words, 4]."""
        parts = [words, self.of[words], self.begin[words], self.end[words]]
        return np.stack(parts, axis=1).astype(dtype)


class Vocabulary:
    """Numbers of words.

    Args:
        path: of the list, for messages.
        numbers: of each word.
        unknown: the word for all words that are not in the list.
        size: one above the largest number; None: as `numbers` tells.
    """

    def __init__(
        self, path: PathLike, numbers: Mapping[str, int], unknown: str, size: int | None = None
    ) -> None:
        self.path = str(path)
        self.numbers = dict(numbers)
        self.unknown = unknown
        self.size = max(self.numbers.values(), default=-1) + 1 if size is None else size
        self._unknown = self.numbers.get(unknown)

    def names(self) -> dict[int, str]:
        """Words by their numbers."""
        return {number: word for word, number in self.numbers.items()}

    def find(self, words: list[str], place: str) -> list[int]:
        """The number of each word.

        Raises:
            FormatError: a word is not in the list, and there is none for the unknown ones; `place`
                (file and line) is put before the message.
        """
        get = self.numbers.get
        numbers = [get(word, self._unknown) for word in words]
        if None in numbers:
            word = words[numbers.index(None)]
            raise FormatError(
                f"{place}: the word {shown(word)} is not in {self.path}, and neither is "
                f"{self.unknown!r}{nearest(word, self.numbers)}"
            )
        return cast("list[int]", numbers)

    def mapped(self, mapping: Mapping[str, str]) -> Vocabulary:
        """With the number of another word for each; words without another one are unknown.

        Raises:
            FormatError: the other word is not in the list, or there is none for the unknown ones.
        """
        numbers = dict(self.numbers)
        for word in sorted(numbers):
            other = mapping.get(word, self.unknown)
            if other not in numbers:
                raise FormatError(f"{self.path}: {word!r} stands for {other!r}, which is not there")
            numbers[word] = numbers[other] if word in mapping else self.numbers[other]
        return Vocabulary(self.path, numbers, self.unknown, self.size)


def read_lines(path: PathLike) -> list[str]:
    """The lines of a text file.

    Raises:
        FormatError: it cannot be read.
    """
    return read_text(path).split("\n")


def _records(path: PathLike, least: int) -> list[tuple[int, list[str]]]:
    """Number and words of each line up to the first blank one."""
    records = []
    for number, line in enumerate(read_lines(path), 1):
        words = line.split()
        if not words:
            break
        if len(words) < least:
            raise FormatError(f"{path}:{number}: {least} columns were expected, not {shown(line)}")
        records.append((number, words))
    if not records:
        raise FormatError(f"{path}: the list is empty")
    return records


def _number(path: PathLike, line: int, word: str) -> int:
    try:
        number = int(float(word))
    except (ValueError, OverflowError):
        raise FormatError(f"{path}:{line}: a number was expected, not {shown(word)}") from None
    if not 0 <= number < _LARGEST:
        raise FormatError(f"{path}:{line}: {shown(word)} is out of range")
    return number


def read_words(path: PathLike, unknown: str) -> Vocabulary:
    """Words, one a line, numbered by lines.

    Raises:
        FormatError: the list cannot be read or is empty.
    """
    records = _records(path, 1)
    numbers = {" ".join(words): place for place, (_, words) in enumerate(records)}
    return Vocabulary(path, numbers, unknown, len(records))


def read_words_with_classes(path: PathLike, unknown: str) -> tuple[Vocabulary, Classes]:
    """Words, each with its class.

    Raises:
        FormatError: the file is wrong; the message names file and line.
    """
    records = _records(path, 2)
    classes = [_number(path, line, words[1]) for line, words in records]
    numbers = {words[0]: place for place, (_, words) in enumerate(records)}
    return Vocabulary(path, numbers, unknown, len(records)), Classes.from_numbers(path, classes)


def read_word_classes(path: PathLike, unknown: str) -> tuple[Vocabulary, Classes, np.ndarray]:
    """Lines of number, count, word and class, as the action writeWordAndClass makes them.

    Returns:
        The words, their classes, and the count of each, float64, [words].

    Raises:
        FormatError: a line is wrong, or a number is missing; with file and line.
    """
    records = _records(path, 4)
    numbers = {}
    classes = [-1] * len(records)
    counts = np.zeros(len(records))
    for line, words in records:
        number = _number(path, line, words[0])
        if number >= len(records) or classes[number] >= 0:
            raise FormatError(
                f"{path}:{line}: the numbers of {len(records)} words are those below it, each once"
            )
        counts[number] = _number(path, line, words[1])
        classes[number] = _number(path, line, words[3])
        numbers[words[2]] = number
    vocabulary = Vocabulary(path, numbers, unknown, len(records))
    return vocabulary, Classes.from_numbers(path, classes), counts


def read_word_map(path: PathLike) -> dict[str, str]:
    """Lines of a word and its replacement.

    Raises:
        FormatError: the file is wrong; the message names file and line.
    """
    return {words[0]: words[1] for _, words in _records(path, 2)}
