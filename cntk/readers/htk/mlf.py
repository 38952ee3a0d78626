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
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from ....framework.base.errors import FormatError, nearest
from ....framework.base.files.atomic import PathLike
from ....framework.base.python.gc_disabled import gc_disabled
from ....framework.base.sequence import repeated
from ....framework.base.untrusted.limits import check_limit
from ....framework.base.untrusted.opener import open_file, open_text
from ....framework.base.untrusted.values import plain, shown
from ....framework.fusion.compiled import native
from ....framework.fusion.compiled.arguments import bind
from ....framework.fusion.compiled.libraries import Library
from ...base.text import read_text
from ...config.parameters import ConfigParameters
from ..base.htk_files import _without_extension

_log = logging.getLogger(__name__)

HEADER = "#!MLF!#"
FRAME = 100000.0
"""Units of time (100 ns) of a frame."""


def mlf_files(section: ConfigParameters) -> list[str]:
    """The label files of a section: one (mlfFile), or a list of them (mlfFileList)."""
    if section.has("mlfFile"):
        return [section.string("mlfFile")]
    listed = read_text(section.string("mlfFileList")).splitlines()
    return [line.strip() for line in listed if line.strip()]


def read_states(path: PathLike) -> list[str]:
    """The names of the states, a line each, numbered by lines.

    Raises:
        FormatError: the file cannot be read, is empty, or names a state twice.
    """
    lines = [line.strip() for line in read_text(path).splitlines() if line.strip()]
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
    """The vector of ones and zeros for each state, float32, [states, dim].

    A line is a state, in the order of the list of states, a space, and digits 0 and 1.

    Raises:
        FormatError: the file is wrong; the message names file and line.
    """
    lines = [line.rstrip() for line in read_text(path).splitlines() if line.strip()]
    rows: list[list[int]] = []
    for number, line in enumerate(lines, 1):
        name, _, digits = line.partition(" ")
        if number > len(states):
            raise FormatError(f"{path}:{number}: there are only {len(states)} states")
        if name != states[number - 1]:
            raise FormatError(
                f"{path}:{number}: the state {states[number - 1]!r} was expected, not {shown(name)}"
            )
        if not digits or set(digits) - {"0", "1"}:
            raise FormatError(f"{path}:{number}: digits 0 and 1 were expected, not {shown(digits)}")
        if rows and len(digits) != len(rows[0]):
            raise FormatError(
                f"{path}:{number}: {len(digits)} digits; the lines before have {len(rows[0])}"
            )
        rows.append([int(digit) for digit in digits])
    if len(rows) != len(states):
        raise FormatError(f"{path}: {len(rows)} states; {len(states)} were expected")
    return np.array(rows, np.float32)


@gc_disabled()
def read_mlf(
    path: PathLike,
    states: Mapping[str, int] | None = None,
    wanted: Collection[str] | None = None,
    frame: float = FRAME,
) -> dict[str, np.ndarray]:
    """The state of each frame, int32, by utterance (its name without extension).

    Args:
        path: of the file.
        states: number of each state; None: the file has numbers.
        wanted: utterances that are needed; None: all.
        frame: units of time of a frame.

    Raises:
        FormatError: the file is wrong; the message names file and line.
    """
    plainly = _read_plainly(path, states, wanted, frame)
    if plainly is not None:
        return plainly
    frames_of: dict[str, np.ndarray] = {}
    described = 0
    for block in _blocks(path, wanted):
        start, stop = block.times(frame)
        numbers = block.numbered(states)
        block.check_order(start, stop)
        described += 4 * int((stop - start).sum()) - _OF_A_BYTE * block.size
        check_limit("fill", described, f"{path}: the states of all frames")
        named = _frames(block.names, numbers, start, stop, block.first)
        for at, (name, frames) in enumerate(named):
            if name in frames_of:
                raise FormatError(
                    f"{path}:{block.titles[at]}: the utterance {name!r} is there already"
                )
            frames_of[name] = frames
    return frames_of


def _frames(
    names: Sequence[str],
    numbers: np.ndarray,
    start: np.ndarray,
    stop: np.ndarray,
    first: Sequence[int] | np.ndarray,
) -> Iterator[tuple[str, np.ndarray]]:
    """The state of each frame of each utterance, whose first labels are given."""
    frames = repeated(numbers, stop - start)
    bounds = np.append(0, np.cumsum(stop - start))[first].tolist()
    for name, begin, end in zip(names, bounds, bounds[1:], strict=False):
        yield name, frames[begin:end]


def read_phones(
    path: PathLike,
    phones: Mapping[str, int],
    wanted: Collection[str] | None = None,
) -> dict[str, np.ndarray]:
    """Phone and frames of each phone that was said, int64 [phones, 2], by utterance.

    Utterances whose first label names no phone, or with a phone that is not known, are left out.

    Args:
        path, wanted: see `read_mlf`; labels have the names of states.
        phones: number of each phone.

    Raises:
        FormatError: a time is not as it should be.
    """
    segments: dict[str, np.ndarray] = {}
    for block in _blocks(path, wanted):
        start, stop = block.times(FRAME)
        said = block.column(_PHONE)
        at = np.flatnonzero([bool(word) for word in said])
        numbers = np.array([phones.get(said[row], -1) for row in at.tolist()], np.int64)
        bounds = np.searchsorted(at, block.first)
        for number, name in enumerate(block.names):
            own = at[bounds[number] : bounds[number + 1]]
            if not len(own) or own[0] != block.first[number]:
                continue
            kinds = numbers[bounds[number] : bounds[number + 1]]
            if kinds.min() < 0:
                unknown = said[own[kinds.argmin()]]
                _log.debug("%s: the phone %s of %s is not known", path, unknown, name)
                continue
            ends = np.append(start[own[1:]], stop[block.first[number + 1] - 1])
            segments[name] = np.column_stack([kinds, ends - start[own]])
    return segments


_BLOCK = 1 << 16  # labels that are taken together
_LATEST = 1 << 20  # frames; almost three hours of speech in one utterance are a mistake
_BEGIN, _END, _STATE, _NUMBER, _PHONE = range(5)  # words of a label
_OF_A_BYTE = 64  # bytes of frames that a byte of a file may stand for without a limit


@dataclass(eq=False)
class _Block:
    """Labels of some utterances.

    Attributes:
        path: of the file.
        names, titles: of each utterance, and the line where it is named.
        first: the first label of each utterance, [utterances + 1].
        lines: of each label.
        size: characters of the labels' lines.
        rows: the words of each label.
    """

    path: PathLike
    names: list[str] = field(default_factory=list)
    titles: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=lambda: [0])
    lines: list[int] = field(default_factory=list)
    size: int = 0
    rows: list[list[str]] = field(default_factory=list)

    def column(self, at: int) -> list[str]:
        """One of the words of each label; "" where there is none."""
        try:
            return list(map(itemgetter(at), self.rows))
        except IndexError:
            return [words[at] if len(words) > at else "" for words in self.rows]

    def _error(self, row: int, text: str) -> FormatError:
        return FormatError(f"{self.path}:{self.lines[row]}: {text}")

    def times(self, frame: float) -> tuple[np.ndarray, np.ndarray]:
        """First frame of each label and the one after its last, int64 [labels]."""
        start, stop = (self._parsed(at, float) for at in (_BEGIN, _END))
        with np.errstate(invalid="ignore"):
            wrong = np.flatnonzero(~((start >= 0) & (start <= stop) & (stop < 1e15)))
        if len(wrong):
            begin, end = self.rows[wrong[0]][:2]
            raise self._error(wrong[0], f"the label ends at {end}, before it begins at {begin}")
        start, stop = _in_frames(start, stop, frame)
        late = np.flatnonzero(stop >= _LATEST)
        if len(late):
            text = f"the label ends at frame {stop[late[0]]:.0f}, which is too late"
            raise self._error(late[0], text)
        return start.astype(np.int64), stop.astype(np.int64)

    def _parsed(self, at: int, kind: type) -> np.ndarray:
        words = self.column(at)
        dtype = np.float64 if kind is float else np.int32
        try:
            return np.array(list(map(kind, words)), dtype)
        except (ValueError, OverflowError):
            pass
        for row, word in enumerate(words):
            try:
                np.array(kind(word), dtype)
            except (ValueError, OverflowError):
                text = f"a number was expected, not {shown(word)}"
                if len(self.rows[row]) <= _STATE:
                    text = "times and a state were expected"
                raise self._error(row, text) from None
        raise AssertionError("all are numbers")

    def numbered(self, states: Mapping[str, int] | None) -> np.ndarray:
        """The state of each label, int32: by its name, or the number after it."""
        if states is None:
            return self._parsed(_NUMBER, int)
        named = self.column(_STATE)
        try:
            return np.array([states[name] for name in named], np.int32)
        except KeyError:
            row = next(row for row, name in enumerate(named) if name not in states)
        name = named[row]
        text = f"there is no state {name!r}{nearest(name, states)}"
        raise self._error(row, text if name else "times and a state were expected")

    def check_order(self, start: np.ndarray, stop: np.ndarray) -> None:
        """That the labels of each utterance follow one another from the first frame on."""
        expected = _expected(stop, np.array(self.first, np.int64))
        wrong = np.flatnonzero(start != expected)
        if len(wrong):
            row = wrong[0]
            raise self._error(
                row,
                f"the label begins at frame {start[row]}, the one before ends at {expected[row]}",
            )


def _in_frames(start: np.ndarray, stop: np.ndarray, frame: float) -> tuple[np.ndarray, np.ndarray]:
    """Times as frames, not rounded down yet: labels shorter than a frame have frame numbers."""
    long = stop - start >= frame - 1
    start, stop = (np.where(long, time / frame + 0.5, time) for time in (start, stop))
    return start, stop


def _expected(stop: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Where each label should begin: where the one before it ends, or at 0."""
    expected = np.append(0, stop[:-1]) if len(stop) else stop
    begins = first[:-1]
    expected[begins[begins < len(stop)]] = 0
    return expected


_PIECE = 1 << 22  # bytes that are read together
_LEAST_LABEL, _LEAST_UTTERANCE = 6, 6  # bytes of the shortest ones
_WORDS = 1 << 16  # different words of labels that are known together


def _read_plainly(
    path: PathLike, states: Mapping[str, int] | None, wanted: Collection[str] | None, frame: float
) -> dict[str, np.ndarray] | None:
    """`read_mlf` by C, of a file whose lines are all plain and right.

    Returns:
        None for any other file: Python reads its lines, and finds its errors.
    """
    library = native.load("label_lines")
    if library is None:
        return None
    frames_of: dict[str, np.ndarray] = {}
    with open_file(path) as file:
        if file.readline().strip() != HEADER.encode():
            return None
        rest = b""
        while True:
            piece = file.read(_PIECE)
            text = rest + (piece or b"\n")  # the last line may lack its end
            done = 0
            while True:
                labels = _Labels.parsed(library, text, done, numbered=states is None)
                if not len(labels.names) and labels.end == done:
                    break
                done = labels.end
                if not labels.add_to(frames_of, states, wanted, frame):
                    return None
            rest = text[done:]
            if not piece:
                return None if rest.strip() else frames_of
            if len(rest) > _PIECE:  # no utterance is as long: a line is not plain
                return None


@dataclass(frozen=True, eq=False)
class _Labels:
    """Labels of whole utterances of a text.

    Attributes:
        names: of the utterances. first: the first label of each, [utterances + 1].
        start, stop: times of each label, float64. numbers: of each label.
        words: by their numbers; none where the labels have numbers of states.
        end: where the next utterance begins. size: bytes that these take.
    """

    names: list[str]
    first: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    numbers: np.ndarray
    words: list[str]
    end: int
    size: int

    @classmethod
    def parsed(cls, library: Library, text: bytes, begin: int, *, numbered: bool) -> _Labels:
        """The labels of the utterances from a place on, up to a line that is not plain."""
        most = (len(text) - begin) // _LEAST_LABEL + 1
        titles = (len(text) - begin) // _LEAST_UTTERANCE + 1
        room = 0 if numbered else min(most, _WORDS)
        start, stop = np.empty((2, most), np.float64)
        numbers = np.empty(most, np.int32)
        title, title_end, ends = np.empty((3, titles), np.int64)
        places, lengths = np.empty((2, room), np.int64)
        block = bind(
            library,
            "label_lines",
            size=len(text),
            text=np.frombuffer(text, np.uint8),
            begin=begin,
            numbered=numbered,
            most=most,
            starts=start,
            stops=stop,
            numbers=numbers,
            most_utterances=titles,
            titles=title,
            title_ends=title_end,
            ends=ends,
            room=room,
            places=places,
            lengths=lengths,
        )
        block.run()
        found = block.struct
        named = zip(
            title[: found.utterances].tolist(), title_end[: found.utterances].tolist(), strict=True
        )
        names = [_utterance(text[one:end].decode("utf-8", "surrogateescape")) for one, end in named]
        spelled = zip(places[: found.words].tolist(), lengths[: found.words].tolist(), strict=True)
        return cls(
            names,
            np.append(0, ends[: found.utterances]),
            start[: found.labels],
            stop[: found.labels],
            numbers[: found.labels],
            [text[place : place + length].decode() for place, length in spelled],
            found.at,
            found.at - begin,
        )

    def add_to(
        self,
        frames_of: dict[str, np.ndarray],
        states: Mapping[str, int] | None,
        wanted: Collection[str] | None,
        frame: float,
    ) -> bool:
        """Add the utterances that are wanted; whether all of these are right."""
        names, first = self.names, self.first
        start, stop, numbers = self.start, self.stop, self.numbers
        if wanted is not None:
            taken = np.array([name in wanted for name in names], bool)
            counts = np.diff(first)
            rows = repeated(taken, counts)
            names = [name for name, own in zip(names, taken.tolist(), strict=True) if own]
            first = np.append(0, np.cumsum(counts[taken]))
            start, stop, numbers = start[rows], stop[rows], numbers[rows]
        if len(set(names)) < len(names) or not frames_of.keys().isdisjoint(names):
            return False
        if states is not None:
            known = np.array([states.get(word, -1) for word in self.words], np.int32)
            numbers = known[numbers]
        if (start > stop).any() or (len(numbers) and numbers.min() < 0):
            return False
        start, stop = _in_frames(start, stop, frame)
        if len(stop) and stop.max() >= _LATEST:
            return False
        start, stop = start.astype(np.int64), stop.astype(np.int64)
        if (start != _expected(stop, first)).any():
            return False
        if 4 * int((stop - start).sum()) > _OF_A_BYTE * self.size:
            return False
        frames_of.update(_frames(names, numbers, start, stop, first))
        return True


def _blocks(path: PathLike, wanted: Collection[str] | None) -> Iterator[_Block]:
    """The labels of the utterances that are wanted, some thousands at a time."""
    block = _Block(path)
    lines, rows = block.lines, block.rows
    title = ""
    named = size = 0
    name = ""
    taken = False
    try:
        with open_text(path, "surrogateescape") as file:
            if file.readline().strip() != HEADER:
                raise FormatError(f"{path}:1: {HEADER!r} was expected")
            for number, line in enumerate(file, 2):
                words = line.split(None, 5)
                if taken and len(words) > 1:  # almost all lines
                    lines.append(number)
                    rows.append(words)
                    size += len(line)
                elif not words:
                    continue
                elif not title:
                    title = line.strip()
                    named = number
                    if title == HEADER:
                        title = ""
                        continue
                    utterance = _name(path, title, number)
                    taken = utterance is not None and (wanted is None or utterance in wanted)
                    name = utterance or ""
                elif words == ["."]:
                    title = ""
                    if taken:
                        block.names.append(name)
                        block.titles.append(named)
                        block.first.append(len(lines))
                        block.size += size
                    taken = False
                    size = 0
                    if len(lines) >= _BLOCK:
                        yield block
                        block = _Block(path)
                        lines, rows = block.lines, block.rows
                elif taken:
                    lines.append(number)
                    rows.append(words)
                    size += len(line)
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}") from error
    if title:
        raise FormatError(f"{path}:{named}: the utterance {plain(title)} does not end with '.'")
    yield block


def _name(path: PathLike, title: str, number: int) -> str | None:
    """The utterance that a line names; None if it names none."""
    if len(title) > 2 and title[0] == title[-1] == '"':
        return _utterance(title)
    _log.warning(
        "%s:%d: a name in quotes was expected, not %s; passed over", path, number, shown(title)
    )
    return None


def _utterance(title: str) -> str:
    """The utterance that a line in quotes names."""
    return _without_extension(title[1:-1].removeprefix("*/"))
