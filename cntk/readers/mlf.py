"""HTK's master label files: the state of every frame of many utterances.

    #!MLF!#
    "george-0-00.lab"
    0 2800000 zero
    .

A line is `begin end state` (times in 100 ns, or frame numbers) with a list of states, or `begin end
name number` without. With a list of states a score may follow, and a phone where one begins.
Source: CNTK's `HTKMLFReader/htkfeatio.h` (`htkmlfreader`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ...framework.atomic import PathLike
from ...framework.errors import FormatError, nearest
from ..config.parameters import ConfigParameters
from .htk import _without_extension

_log = logging.getLogger(__name__)

HEADER = "#!MLF!#"
FRAME = 100000.0
"""Units of time (100 ns) of a frame."""


def mlf_files(section: ConfigParameters) -> list[str]:
    """The label files of a section: one (mlfFile), or those of a list (mlfFileList)."""
    if section.has("mlfFile"):
        return [section.string("mlfFile")]
    return [
        line.strip() for line in _read(section.string("mlfFileList")).splitlines() if line.strip()
    ]


def read_states(path: PathLike) -> list[str]:
    """The names of the states, a line each; the number of a state is that of its line.

    Raises:
        FormatError: the file cannot be read, is empty, or names a state twice.
    """
    lines = [line.strip() for line in _read(path).splitlines() if line.strip()]
    if not lines:
        raise FormatError(f"{path}: the list of states is empty")
    seen: dict[str, int] = {}
    for number, name in enumerate(lines, 1):
        if name in seen:
            raise FormatError(
                f"{path}:{number}: the state {name!r} is there already, as {seen[name]}"
            )
        seen[name] = number
    return lines


def read_targets(path: PathLike, states: Sequence[str]) -> np.ndarray:
    """The vector of ones and zeros that stands for each state, float32, [states, dim].

    A line is a state, in the order of the list of states, a space, and digits 0 and 1.

    Raises:
        FormatError: file and line of what is not as it should be.
    """
    lines = [line.rstrip() for line in _read(path).splitlines() if line.strip()]
    rows: list[list[int]] = []
    for number, line in enumerate(lines, 1):
        name, _, digits = line.partition(" ")
        if number > len(states):
            raise FormatError(f"{path}:{number}: there are only {len(states)} states")
        if name != states[number - 1]:
            raise FormatError(
                f"{path}:{number}: the state {states[number - 1]!r} was expected, not {name!r}"
            )
        if not digits or set(digits) - {"0", "1"}:
            raise FormatError(f"{path}:{number}: digits 0 and 1 were expected, not {digits!r}")
        if rows and len(digits) != len(rows[0]):
            raise FormatError(
                f"{path}:{number}: {len(digits)} digits; the lines before have {len(rows[0])}"
            )
        rows.append([int(digit) for digit in digits])
    if len(rows) != len(states):
        raise FormatError(f"{path}: {len(rows)} states; {len(states)} were expected")
    return np.array(rows, np.float32)


def read_mlf(
    path: PathLike,
    states: Mapping[str, int] | None = None,
    wanted: Collection[str] | None = None,
    frame: float = FRAME,
) -> dict[str, np.ndarray]:
    """The state of each frame, int32, by utterance (its name without extension).

    Args:
        path: of the file.
        states: number of each state; None: the numbers stand in the file.
        wanted: utterances that are needed; None: all.
        frame: units of time of a frame.

    Raises:
        FormatError: file and line of what is not as it should be.
    """
    found: dict[str, np.ndarray] = {}
    for name, first, end, lines in _utterances(path, wanted):
        if name in found:
            raise FormatError(f"{path}:{first}: the utterance {name!r} is there already")
        found[name] = _labels(path, lines, first, end, states, frame)
    return found


def read_phones(
    path: PathLike,
    phones: Mapping[str, int],
    wanted: Collection[str] | None = None,
    frame: float = FRAME,
) -> dict[str, np.ndarray]:
    """Phone and frames of each phone that was said, int64 [phones, 2], by utterance.

    Utterances whose first label names no phone are left out.

    Args:
        path, wanted, frame: see `read_mlf`; labels have the names of states.
        phones: number of each phone.

    Raises:
        FormatError: a phone is unknown, or a time is not as it should be.
    """
    found: dict[str, np.ndarray] = {}
    for name, first, end, lines in _utterances(path, wanted):
        numbers, begins, last = [], [], 0
        for at in range(first, end):
            words = lines[at].split()
            if not words:
                continue
            place = f"{path}:{at + 1}: "
            start, last = _times(words, frame, place)
            if len(words) < 5:
                continue
            if words[4] not in phones:
                raise FormatError(f"{place}there is no phone {words[4]!r}")
            numbers.append(phones[words[4]])
            begins.append(start)
        if begins and begins[0] == 0:
            found[name] = np.column_stack([numbers, np.diff([*begins, last])])
    return found


def _utterances(
    path: PathLike, wanted: Collection[str] | None
) -> Iterator[tuple[str, int, int, list[str]]]:
    """Name of each utterance, its first label and the end of its labels, as indexes of all lines,
    and these."""
    lines = _read(path).splitlines()
    if not lines or lines[0].strip() != HEADER:
        raise FormatError(f"{path}:1: {HEADER!r} was expected")
    at = 1
    while at < len(lines):
        title = lines[at].strip()
        at += 1
        if not title or title == HEADER:
            continue
        first = at
        while at < len(lines) and lines[at].strip() != ".":
            at += 1
        if at == len(lines):
            raise FormatError(f"{path}:{first}: the utterance {title} does not end with '.'")
        at += 1
        if len(title) < 3 or title[0] != '"' or title[-1] != '"':
            _log.warning(
                "%s:%d: a name in quotes was expected, not %s; passed over", path, first, title
            )
            continue
        name = _without_extension(title[1:-1].removeprefix("*/"))
        if wanted is None or name in wanted:
            yield name, first, at - 1, lines


def _labels(
    path: PathLike,
    lines: list[str],
    begin: int,
    end: int,
    states: Mapping[str, int] | None,
    frame: float,
) -> np.ndarray:
    numbers, counts = [], []
    expected = 0
    for at in range(begin, end):
        words = lines[at].split()
        if not words:
            continue
        place = f"{path}:{at + 1}: "
        start, stop, number = _entry(words, states, frame, place)
        if start != expected:
            raise FormatError(
                f"{place}the label begins at frame {start}, the one before ends at {expected}"
            )
        numbers.append(number)
        counts.append(stop - start)
        expected = stop
    return np.repeat(np.array(numbers, np.int32), counts)


def _entry(
    words: list[str], states: Mapping[str, int] | None, frame: float, place: str
) -> tuple[int, int, int]:
    """First frame, the frame behind the last one, and the number of the state."""
    if len(words) < (4 if states is None else 3):
        raise FormatError(f"{place}times and a state were expected, not {' '.join(words)!r}")
    start, stop = _times(words, frame, place)
    if states is None:
        try:
            return start, stop, int(words[3])
        except ValueError:
            raise FormatError(f"{place}a number was expected in {' '.join(words)!r}") from None
    name = words[2]
    if name not in states:
        raise FormatError(f"{place}there is no state {name!r}{nearest(name, states)}")
    return start, stop, states[name]


def _times(words: list[str], frame: float, place: str) -> tuple[int, int]:
    """First frame, and the one behind the last."""
    try:
        start, stop = float(words[0]), float(words[1])
    except (IndexError, ValueError):
        raise FormatError(f"{place}a number was expected in {' '.join(words)!r}") from None
    if not 0 <= start <= stop < 1e15:
        raise FormatError(f"{place}the label ends at {words[1]}, before it begins at {words[0]}")
    if stop - start >= frame - 1:
        start, stop = start / frame + 0.5, stop / frame + 0.5
    if stop >= 1 << 31:
        raise FormatError(f"{place}the label ends at frame {stop:.0f}, which is too late")
    return int(start), int(stop)


def _read(path: PathLike) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}") from error
