"""CNTK's text format by operations on whole arrays of bytes: the fast way for ordinary chunks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from ....framework.base.sequence import bincount, repeated
from ..base.data import Samples, Stream
from .lines import Problems

_NEWLINE, _SPACE, _BAR, _COLON, _HASH = b"\n |:#"
_IN_NUMBER = np.zeros(256, bool)
_IN_NUMBER[list(b"0123456789+-.eE")] = True
_DIGIT = np.zeros(256, bool)
_DIGIT[list(b"0123456789")] = True
_ODD = np.zeros(256, bool)  # they end a sample, but no ordinary file has them
_ODD[:32] = True
_ODD[list(b"\t\n\r")] = False
_SIGN = np.zeros(256, bool)
_SIGN[list(b"+-")] = True


class _Tokens:
    """Words of a text: where each begins and ends, and the field (bar) that it belongs to."""

    def __init__(self, data: np.ndarray) -> None:
        space = data <= _SPACE
        gap = space | (data == _BAR)
        inside = np.concatenate([[False], ~gap, [False]])
        edges = np.flatnonzero(inside[1:] != inside[:-1])
        self.begin = edges[::2]
        self.end = edges[1::2]
        self.bars = np.flatnonzero(data == _BAR)
        self.field = np.searchsorted(self.bars, self.begin) - 1
        before = data[np.maximum(self.begin - 1, 0)]
        self.is_name = (before == _BAR) & (self.begin > 0)


def parse_arrays(
    data: np.ndarray,
    streams: Sequence[tuple[str, Stream]],
    lines: np.ndarray,
    first_line: int,
    problems: Problems,
) -> list[Samples] | None:
    """All samples of a chunk in which nothing is unusual; None if something is.

    Usual are names that are known or not longer than the longest known one, comments, whole dense
    samples, indices within the stream, and a newline at the end.

    Args:
        data: of the chunk, uint8.
        streams: those wanted, each with its name in the file.
        lines: how many lines each sequence has, [sequences].
        first_line: the number of the first line, for messages.
        problems: takes warnings.
    """
    if not len(data) or data[-1] != _NEWLINE or _ODD[data].any():
        return None
    ends = np.flatnonzero(data == _NEWLINE)
    if len(ends) != lines.sum():
        return None
    tokens = _Tokens(data)
    # The line of each bar; only a number may precede the first bar of a line.
    bar_line = np.searchsorted(ends, tokens.bars)
    token_line = np.searchsorted(ends, tokens.begin)
    first_bar = np.full(len(ends), len(tokens.bars))
    first_bar[bar_line[::-1]] = np.arange(len(tokens.bars))[::-1]
    is_id = tokens.field < first_bar[token_line]
    if not _plain_ids(data, tokens, is_id, token_line, ends):
        return None
    kind = _kinds(data, tokens, [alias.encode() for alias, _ in streams])
    if kind is None or np.any(bincount(bar_line[kind >= 0], minlength=len(ends)) == 0):
        return None
    owner = repeated(np.arange(len(lines)), lines)[bar_line]
    values = ~tokens.is_name & ~is_id
    samples_lists = []
    for number, (_, stream) in enumerate(streams):
        fields = np.flatnonzero(kind == number)
        counts = bincount(owner[fields], minlength=len(lines))
        if np.any(counts > lines):
            return None
        mine = values & (kind[tokens.field] == number)
        samples = _samples(data, stream, tokens, mine, fields)
        if samples is None:
            return None
        samples.begin = np.concatenate([[0], np.cumsum(counts)])
        samples_lists.append(samples)
    longest = np.max([samples.lengths for samples in samples_lists], axis=0)
    if np.any(longest < lines):
        return None
    _warn_of_others(data, tokens, kind, [alias for alias, _ in streams], first_line, problems)
    return samples_lists


def _warn_of_others(
    data: np.ndarray,
    tokens: _Tokens,
    kind: np.ndarray,
    aliases: Sequence[str],
    first_line: int,
    problems: Problems,
) -> None:
    """Name the streams that the config does not list, each with its first place."""
    begin, end = tokens.begin[tokens.is_name], tokens.end[tokens.is_name]
    other = (kind < 0) & (data[begin] != _HASH)
    begin, lengths = begin[other], (end - begin)[other]
    if not len(begin):
        return
    places: list[int] = []
    for length in np.unique(lengths).tolist():
        same = begin[lengths == length]
        names = data[same[:, None] + np.arange(length)].view(f"S{length}").reshape(-1)
        places += same[np.unique(names, return_index=True)[1]].tolist()
    ends = np.flatnonzero(data == _NEWLINE)
    for at in sorted(places):
        line = int(np.searchsorted(ends, at))
        column = at - int(ends[line - 1]) if line else at + 1
        name = data[at : at + int(lengths[np.searchsorted(begin, at)])].tobytes()
        if not problems.pass_over(name, sorted(aliases), first_line + line, column):
            break


def _plain_ids(
    data: np.ndarray, tokens: _Tokens, is_id: np.ndarray, line: np.ndarray, ends: np.ndarray
) -> bool:
    """Whether only a number, at the beginning, precedes the first bar of a line."""
    begin, end = tokens.begin[is_id], tokens.end[is_id]
    starts = np.concatenate([[0], ends[:-1] + 1])[line[is_id]]
    if np.any(begin != starts):
        return False
    digits = np.concatenate([[0], np.cumsum(_DIGIT[data])])
    return bool(np.all(digits[end] - digits[begin] == end - begin))


def _kinds(data: np.ndarray, tokens: _Tokens, aliases: list[bytes]) -> np.ndarray | None:
    """The stream of each field; -1: a comment or a name that is not wanted; None: unusual."""
    begin, end = tokens.begin[tokens.is_name], tokens.end[tokens.is_name]
    field = tokens.field[tokens.is_name]
    if len(field) != len(tokens.bars):  # a bar without a name
        return None
    lengths = end - begin
    kind = np.full(len(begin), -1)
    for number, alias in enumerate(aliases):
        same = np.flatnonzero(lengths == len(alias))
        for place, letter in enumerate(alias):
            same = same[data[begin[same] + place] == letter]
        kind[same] = number
    unknown = (kind < 0) & (data[begin] != _HASH)
    return None if np.any(lengths[unknown] > max(map(len, aliases))) else kind


def _samples(
    data: np.ndarray, stream: Stream, tokens: _Tokens, mine: np.ndarray, fields: np.ndarray
) -> Samples | None:
    """The samples of `fields` (begin is left to the caller); None: unusual."""
    begin, end = tokens.begin[mine], tokens.end[mine]
    place = np.searchsorted(fields, tokens.field[mine])
    counts = bincount(place, minlength=len(fields))
    text = np.full(len(data) + 1, _SPACE, np.uint8)
    inside = np.zeros(len(data) + 1, np.int8)
    inside[begin], inside[end] = 1, -1
    chosen = np.flatnonzero(np.cumsum(inside, dtype=np.int8))
    text[chosen] = data[chosen]
    nothing = np.zeros(1, np.int64)
    if stream.sparse:
        colons = np.flatnonzero(text == _COLON)
        # Exactly one colon in each word, with digits alone before it.
        word = np.searchsorted(begin, colons, side="right") - 1
        if not np.array_equal(word, np.arange(len(begin))):
            return None
        digits = np.concatenate([[0], np.cumsum(_DIGIT[text])])
        if np.any(digits[colons] - digits[begin] != colons - begin) or np.any(colons == begin):
            return None
        text[colons] = _SPACE
        numbers = parse_numbers(text, np.sort(np.concatenate([begin, colons + 1])))
        if numbers is None:
            return None
        indices = numbers[::2]
        if np.any(indices >= stream.dim):
            return None
        first = np.concatenate([[0], np.cumsum(counts)])
        values = numbers[1::2].astype(stream.dtype)
        return Samples(nothing, values, indices.astype(np.int64), first)
    if np.any(counts != stream.dim):
        return None
    numbers = parse_numbers(text, begin)
    return numbers if numbers is None else Samples(nothing, _rows(numbers, stream))


def _rows(numbers: np.ndarray, stream: Stream) -> np.ndarray:
    return numbers.astype(stream.dtype).reshape(-1, stream.dim)


def parse_numbers(text: np.ndarray, begin: np.ndarray) -> np.ndarray | None:
    """The numbers of a text of numbers and spaces, which begin at `begin`; None: something else."""
    if not len(begin):
        return np.zeros(0)
    used = text[text != _SPACE]
    first = text[begin]
    signed = _SIGN[first]
    if not (_IN_NUMBER[used].all() and _DIGIT[first[~signed]].all()):
        return None
    if not _DIGIT[text[begin[signed] + 1]].all():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # a word that is no number
        try:
            numbers = np.fromstring(text.tobytes(), np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    return numbers if len(numbers) == len(begin) else None
