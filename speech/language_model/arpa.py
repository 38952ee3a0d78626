"""ARPA files of n-gram models, read and written.

Format: SRILM's `ngram-format(5)`. Numbers are log10.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.opener import PathLike, path_text, read_file
from ...framework.base.untrusted.values import shown
from .model import BEGIN, NO_PROBABILITY, NgramModel

_COUNT = re.compile(rb"ngram\s+0*(\d{1,3})\s*=\s*(\d{1,15})\s*")
_START, _STOP = b"\\data\\", b"\\end\\"


def _refuse(message: str) -> None:
    raise FormatError(message)


@dataclass
class ArpaText:
    """The n-grams of an ARPA file as they stand there.

    Attributes:
        name: of the file. vocabulary: its words. words, log10, backoff: of each order, words as
            numbers, int64, [n-grams, n], and log10 of probabilities and back-off weights, float64,
            NaN where no back-off weight stands. lines: the number of each one's line, int64.
    """

    name: str
    vocabulary: list[str] = field(default_factory=list)
    words: list[np.ndarray] = field(default_factory=list)
    log10: list[np.ndarray] = field(default_factory=list)
    backoff: list[np.ndarray] = field(default_factory=list)
    lines: list[np.ndarray] = field(default_factory=list)

    def place(self, order: int, row: int) -> str:
        """File and line of an n-gram, and its words, for messages."""
        words = " ".join(self.vocabulary[word] for word in self.words[order - 1][row])
        return f"{self.name}: line {self.lines[order - 1][row]}: {shown(words)}"

    def model(self, problem: Callable[[str], None] = _refuse) -> NgramModel:
        """The model; `problem` is called with each message about an n-gram, and may raise.

        Where it does not, n-grams without context and those that come again are left out, and
        missing back-off weights are 1, as in Kaldi.

        Raises:
            FormatError: by default, of the first problem.
        """
        rows = [
            (words, log10, np.nan_to_num(backoff))
            for words, log10, backoff in zip(self.words, self.log10, self.backoff, strict=True)
        ]
        model, taken = NgramModel.of_rows(self.vocabulary, rows)
        for order, first in enumerate(taken, 1):
            left_out = np.ones(len(self.lines[order - 1]), bool)
            left_out[first] = False
            for row in np.flatnonzero(left_out).tolist():
                context = self._context(model, order, row)
                what = "comes again" if context >= 0 else "its first words are no n-gram"
                problem(f"{self.place(order, row)}: {what}")
            if order > 1:
                is_context = np.unique(model.orders[order - 1].context)
                row_of = taken[order - 2][is_context]
                for row in row_of[np.isnan(self.backoff[order - 2][row_of])].tolist():
                    longer = "there are longer n-grams, but no back-off weight"
                    problem(f"{self.place(order - 1, row)}: {longer}")
        return model

    def _context(self, model: NgramModel, order: int, row: int) -> int:
        context = np.zeros(1, np.int64)
        for j, word in enumerate(self.words[order - 1][row, :-1]):
            context = model.orders[j].find(context, np.array([word]))
        return int(context[0])


def parse_arpa(data: bytes, name: str) -> ArpaText:
    """The n-grams of an ARPA file.

    Raises:
        FormatError: a section is missing or has more or fewer n-grams than the file says; a line
            has too few or too many fields, a word that is no 1-gram, or a number that is none.
    """
    lines = data.split(b"\n")
    marks = [at for at, line in enumerate(lines) if line.startswith(b"\\")]
    while marks and lines[marks[0]].rstrip() != _START:
        del marks[0]
    if not marks:
        raise FormatError(f"{name}: no line {_START.decode()}: this is no ARPA file")
    marks.append(len(lines))
    counts = _counts(lines, marks[0] + 1, marks[1], name)
    text = ArpaText(name)
    numbers: dict[bytes, int] = {}
    for order, count in enumerate(counts, 1):
        begin = marks[min(order, len(marks) - 1)]
        _expect(lines, begin, b"\\%d-grams:" % order, name)
        end = marks[order + 1]
        _read_section(text, numbers, lines, (begin + 1, end), order, order == len(counts))
        found = len(text.lines[-1])
        if found != count:
            raise FormatError(
                f"{name}: line {begin + 1}: {found} {order}-grams, and the head of the file says"
                f" {count}"
            )
    _expect(lines, marks[min(len(counts) + 1, len(marks) - 1)], _STOP, name)
    return text


def _expect(lines: list[bytes], at: int, wanted: bytes, name: str) -> None:
    found = lines[at].rstrip() if at < len(lines) else b""
    if found != wanted:
        there = shown(_text(found)) if at < len(lines) else "the end of the file"
        raise FormatError(f"{name}: line {at + 1}: {wanted.decode()} was expected, not {there}")


def _counts(lines: list[bytes], begin: int, end: int, name: str) -> list[int]:
    counts: list[int] = []
    for at in range(begin, end):
        line = lines[at].strip()
        if not line:
            continue
        match = _COUNT.fullmatch(line)
        if match is None or int(match[1]) != len(counts) + 1:
            wanted = f"'ngram {len(counts) + 1}=COUNT' was expected"
            raise FormatError(f"{name}: line {at + 1}: {wanted}, not {shown(_text(line))}")
        counts.append(int(match[2]))
    if not counts:
        raise FormatError(f"{name}: line {begin}: no counts of n-grams follow")
    return counts


def _read_section(
    text: ArpaText,
    numbers: dict[bytes, int],
    lines: list[bytes],
    span: tuple[int, int],
    order: int,
    longest: bool,
) -> None:
    rows = [line.split() for line in lines[span[0] : span[1]]]
    places = np.flatnonzero(np.fromiter(map(len, rows), np.int64, len(rows)))
    rows = [row for row in rows if row]
    number = places + span[0] + 1

    def refuse(row: int, problem: str) -> None:
        raise FormatError(f"{text.name}: line {number[row]}: {problem}")

    width = np.fromiter(map(len, rows), np.int64, len(rows))
    wrong = (width < order + 1) | (width > order + 1 + (not longest))
    if wrong.any():
        row = int(wrong.argmax())
        backoff = "" if longest else " and maybe a back-off weight"
        wanted = f"log10 of a probability, {order} words{backoff} were expected"
        refuse(row, f"{wanted}, not {width[row]} fields")
    if order == 1:
        for row in rows:
            numbers.setdefault(row[1], len(numbers))
        if len(numbers) < len(rows):
            seen: set[bytes] = set()
            again = next(i for i, row in enumerate(rows) if row[1] in seen or seen.add(row[1]))
            refuse(again, f"the word {shown(_text(rows[again][1]))} comes again")
        text.vocabulary = [_text(word) for word in numbers]
    words = np.empty((len(rows), order), np.int64)
    for j in range(order):
        words[:, j] = [numbers.get(row[j + 1], -1) for row in rows]
    if (words < 0).any():
        row, j = np.argwhere(words < 0)[0].tolist()
        refuse(row, f"the word {shown(_text(rows[row][j + 1]))} is no 1-gram")
    has_backoff = np.flatnonzero(width > order + 1)
    backoff = np.full(len(rows), np.nan)
    backoff[has_backoff] = _floats(rows, has_backoff, -1, refuse)
    text.words.append(words)
    text.log10.append(_floats(rows, np.arange(len(rows)), 0, refuse))
    text.backoff.append(backoff)
    text.lines.append(number)


def _floats(
    rows: list[list[bytes]], taken: np.ndarray, column: int, refuse: Callable[[int, str], None]
) -> np.ndarray:
    texts = [rows[row][column] for row in taken.tolist()]
    try:
        values = np.array(list(map(float, texts)), np.float64)
    except ValueError:
        values = np.array([_float(text) for text in texts])
    if not np.isfinite(values).all():
        at = int((~np.isfinite(values)).argmax())
        refuse(int(taken[at]), f"{shown(_text(texts[at]))} is no number")
    return values


def _float(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def read_arpa(path: PathLike) -> NgramModel:
    """The model in an ARPA file.

    Raises:
        FormatError: as `parse_arpa`; or an n-gram comes twice, its first words are no n-gram, or
            have no back-off weight.
    """
    return parse_arpa(read_file(path), path_text(path)).model()


def arpa_lines(model: NgramModel) -> Iterator[str]:
    """The text of an ARPA file, in parts: back-off weights stand where longer n-grams follow."""
    counts = "".join(f"ngram {n}={len(ngrams)}\n" for n, ngrams in enumerate(model.orders, 1))
    yield f"\\data\\\n{counts}"
    begin = model.numbers.get(BEGIN, -1)
    for order, ngrams in enumerate(model.orders, 1):
        yield f"\n\\{order}-grams:\n"
        is_context = np.zeros(len(ngrams), bool)
        if order < model.order:
            is_context[model.orders[order].context] = True
        log10 = np.where(ngrams.word == begin, NO_PROBABILITY, ngrams.log10)
        columns = log10, ngrams.backoff, is_context, model.row_words(order)
        for value, backoff, longer, words in zip(*(c.tolist() for c in columns), strict=True):
            line = f"{value:.7g}\t{' '.join(model.vocabulary[word] for word in words)}"
            yield f"{line}\t{backoff:.7g}\n" if longer else f"{line}\n"
    yield "\n\\end\\\n"
