"""Utterances of HTK feature files and label files, with windows of neighboring frames.

Source: CNTK's `HTKMLFReader/utterancesourcemulti.h` and `minibatchsourcehelpers.h`.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.sequence import repeated
from ..base.data import ChunkInfo, Deserializer, Samples, Stream, ranges
from ..base.htk_files import HtkFile, HtkPath

_log = logging.getLogger(__name__)

CHUNK_FRAMES = 15 * 60 * 100
"""A chunk ends with the utterance that takes it beyond so many frames (15 minutes)."""

CHUNK_UTTERANCES = (1 << 16) - 1
LONGEST = (1 << 16) - 1
"""The most frames of an utterance."""

_SHOWN = 5  # warnings of a kind that are shown
_WORDS = {"dim": "dimension", "kind": "kind of frames", "period": "period of frames"}


@dataclass(eq=False)
class Windows(Samples):
    """Frames that are given with their neighbors: `take` joins them, oldest first.

    Attributes:
        low, high: the first and the last frame of the utterance of each frame, int64, [frames];
            neighbors beyond are replaced by these.
        left, right: neighbors on each side.
    """

    low: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    high: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    left: int = 0
    right: int = 0

    def take(self, sequences: np.ndarray) -> Samples:
        """See `Samples.take`."""
        begin, rows = ranges(self.begin[sequences], self.begin[sequences + 1])
        near = rows[:, None] + np.arange(-self.left, self.right + 1)
        near = np.clip(near, self.low[rows, None], self.high[rows, None])
        return Samples(begin, self.values[near].reshape(len(rows), -1))


class FrameFile(Protocol):
    """The frames of an utterance: an HTK file, or what another format has in its place."""

    @property
    def path(self) -> str:
        """Of the file, or another name for messages."""
        ...

    @property
    def kind(self) -> str:
        """Of the frames; all of a stream are alike."""
        ...

    @property
    def period(self) -> int:
        """From frame to frame, in units of 100 ns."""
        ...

    @property
    def frames(self) -> int:
        """How many there are."""
        ...

    @property
    def dim(self) -> int:
        """Numbers in a frame."""
        ...

    def read(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Frames `first` to `last`, both included, float32, [frames, dim]; None: to the end."""
        ...


@dataclass(eq=False)
class Features:
    """A stream of frames.

    Attributes:
        stream: its `dim` counts all frames of a window.
        entries: the frames of each utterance.
        left, right: neighbors of a frame; where both are 0, `dim` gives their number, the
            same on both sides.
        expand: whether a file holds one frame, which is repeated for the whole utterance.
        path: of the list of files.
    """

    stream: Stream
    entries: list[HtkPath]
    left: int = 0
    right: int = 0
    expand: bool = False
    path: str = ""

    def file(self, entry: HtkPath) -> FrameFile:
        """The file of an entry.

        Raises:
            FormatError: it is not as it should be; with the line of the list that names it.
        """
        try:
            return HtkFile.open(entry.path)
        except FormatError as error:
            if not entry.line:
                raise
            raise FormatError(f"{self.path}:{entry.line}: {error}") from None

    def frames(self, entry: HtkPath) -> int:
        """Frames of an entry; where the list does not say, the file does."""
        return self.file(entry).frames if entry.frames is None else entry.frames

    def context(self, file: FrameFile) -> tuple[int, int]:
        """Neighbors on each side, for the frames of this file.

        Raises:
            FormatError: its frames and `dim` do not go together.
        """
        dim = self.stream.dim
        if self.left or self.right:
            if file.dim * (1 + self.left + self.right) == dim:
                return self.left, self.right
        elif dim % file.dim == 0 and dim // file.dim % 2:
            side = dim // file.dim // 2
            return side, side
        window = 1 + self.left + self.right
        wanted = f"{dim // window}" if window > 1 else f"{dim}, or an odd part of it,"
        raise FormatError(
            f"{file.path}: frames of {file.dim} numbers; {wanted} were expected for "
            f"{self.stream.name}"
        )


@dataclass(eq=False)
class Labels:
    """A stream of labels.

    Attributes:
        stream: of one-hot vectors, or of targets.
        states: the state of each frame of an utterance, by its name.
        targets: the vector of each state, [states, dim]; None: one-hot.
    """

    stream: Stream
    states: Mapping[str, np.ndarray]
    targets: np.ndarray | None = None


class Utterances(Deserializer):
    """Utterances with features and labels. Those that do not fit together are named and left out.

    Args:
        features: streams of frames; their lists name the same utterances in the same order. The
            first one tells the names and the lengths.
        labels: streams of labels.
        frame_mode: whether every frame is a sequence by itself.
        longest: utterances with more frames are left out.
        lattices: names of utterances with one; others are left out. None: none is needed.

    Attributes:
        names: of the utterances that are used.
        missing: names of those without labels, with labels of another length, or without lattice.

    Raises:
        FormatError: the lists differ in length, most utterances are unusable, or a label is not
            below its dimension.
    """

    def __init__(
        self,
        features: Sequence[Features],
        labels: Sequence[Labels] = (),
        *,
        frame_mode: bool = False,
        longest: int = LONGEST,
        lattices: Container[str] | None = None,
    ) -> None:
        self._features = list(features)
        self._labels = list(labels)
        self._lattices = lattices
        self._files: dict[str, FrameFile] = {}  # the first one of each stream
        self._frame_mode = frame_mode
        self.streams = [part.stream for part in (*features, *labels)]
        count = len(features[0].entries)
        for part in features[1:]:
            if len(part.entries) != count:
                raise FormatError(
                    f"the list of {part.stream.name} names {len(part.entries)} files, the list of "
                    f"{features[0].stream.name} {count}"
                )
        lengths = self._lengths(min(longest, LONGEST))
        self.missing: list[str] = []
        used = [at for at in np.flatnonzero(lengths).tolist() if self._complete(at, lengths[at])]
        what = "labels" if lattices is None else "labels or no lattice"
        if self.missing:
            _log.warning("%d of %d utterances have no %s", len(self.missing), count, what)
        if 2 * len(self.missing) > count or not used:
            shown = ", ".join(self.missing[:_SHOWN])
            raise FormatError(f"{len(self.missing)} of {count} utterances have no {what}: {shown}")
        self._used = used
        self.names = [features[0].entries[at].name for at in used]
        self._states = [_joined([part.states[name] for name in self.names]) for part in labels]
        for part, states in zip(labels, self._states, strict=True):
            _check_states(part, states)
        self._split(lengths[used])

    def _lengths(self, longest: int) -> np.ndarray:
        """Frames of each utterance; 0 where it is not to be used."""
        first, *others = self._features
        lengths = np.array([first.frames(entry) for entry in first.entries], np.int64)
        bad = 0
        for at, length in enumerate(lengths.tolist()):
            why = None
            if length > longest:
                why = f"it has {length} frames, more than {longest}"
            for part in others:
                here = part.frames(part.entries[at])
                if here != (1 if part.expand else length):
                    why = f"{part.stream.name} has {here} frames, {first.stream.name} {length}"
            if why:
                bad += 1
                lengths[at] = 0
                if bad <= _SHOWN:
                    _log.warning("utterance %s left out: %s", first.entries[at].name, why)
        if 2 * bad > len(lengths):
            raise FormatError(f"{bad} of {len(lengths)} utterances cannot be used; the last: {why}")
        return lengths

    def _complete(self, at: int, length: int) -> bool:
        """Whether all label sets have an utterance, and the lattices if there are any."""
        name = self._features[0].entries[at].name
        why = ""
        if self._lattices is not None and name not in self._lattices:
            why = "no lattice"
        for part in self._labels:
            states = part.states.get(name)
            if states is None or len(states) != length:
                why = "no labels" if states is None else f"{len(states)} labels, {length} frames"
                why += f" in {part.stream.name}"
                break
        if not why:
            return True
        self.missing.append(name)
        if len(self.missing) <= _SHOWN:
            _log.warning("utterance %s left out: %s", name, why)
        return False

    def _split(self, lengths: np.ndarray) -> None:
        """Distributes the utterances over chunks."""
        ends = np.cumsum(lengths)
        bounds = [0]
        while bounds[-1] < len(lengths):
            first = bounds[-1]
            before = ends[first - 1] if first else 0
            last = int(np.searchsorted(ends, before + CHUNK_FRAMES, side="right"))
            bounds.append(min(last + 1, first + CHUNK_UTTERANCES, len(lengths)))
        self._bounds = bounds
        self._begin = np.concatenate([[0], ends])
        self.chunks = []
        for low, high in zip(bounds, bounds[1:], strict=False):
            if self._frame_mode:
                count = int(self._begin[high] - self._begin[low])
                self.chunks.append(ChunkInfo(np.ones(count, np.int64)))
            else:
                self.chunks.append(ChunkInfo(lengths[low:high], self.names[low:high]))

    def read_chunk(self, number: int) -> list[Samples]:
        """See `Deserializer.read_chunk`."""
        low, high = self._bounds[number : number + 2]
        begin = self._begin[low : high + 1]
        offsets = begin - begin[0]
        sequences = np.arange(offsets[-1] + 1) if self._frame_mode else offsets
        samples = [self._read(part, low, offsets, sequences) for part in self._features]
        for part, states in zip(self._labels, self._states, strict=True):
            samples.append(_labeled(part, sequences, states[begin[0] : begin[-1]]))
        return samples

    def _read(
        self, part: Features, low: int, offsets: np.ndarray, sequences: np.ndarray
    ) -> Samples:
        file: FrameFile | None = None
        values = np.empty((0, 0), part.stream.dtype)
        left = right = 0
        for place, (begin, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
            entry = part.entries[self._used[low + place]]
            if file is None or file.path != entry.path:
                file = part.file(entry)
                left, right = part.context(file)
                self._check_alike(part, file)
            if not values.size:
                values = np.empty((offsets[-1], file.dim), part.stream.dtype)
            frames = file.read(entry.first, entry.last)
            if not part.expand and len(frames) != end - begin:
                raise FormatError(f"{file.path}: {len(frames)} frames; {end - begin} were expected")
            values[begin:end] = frames
        if not left and not right:
            return Samples(sequences, values)
        lengths = np.diff(offsets)
        first = repeated(offsets[:-1], lengths)
        last = repeated(offsets[1:] - 1, lengths)
        return Windows(sequences, values, None, None, first, last, left, right)

    def _check_alike(self, part: Features, file: FrameFile) -> None:
        """That a file is like the first one of its stream."""
        first = self._files.setdefault(part.stream.name, file)
        for what in ("dim", "kind", "period"):
            here, there = getattr(file, what), getattr(first, what)
            if here != there:
                raise FormatError(
                    f"{file.path}: the {_WORDS[what]} is {here}; in {first.path} it is {there}"
                )


class LabelSequences(Deserializer):
    """The labels of utterances by themselves, in one chunk, to be joined with features by name.

    Raises:
        FormatError: a label is not below its dimension.
    """

    def __init__(self, labels: Labels) -> None:
        self.streams = [labels.stream]
        names = list(labels.states)
        lengths = np.array([len(labels.states[name]) for name in names], np.int64)
        self.chunks = [ChunkInfo(lengths, names)]
        self._labels = labels
        self._states = _joined([labels.states[name] for name in names])
        _check_states(labels, self._states)

    def read_chunk(self, number: int) -> list[Samples]:
        """See `Deserializer.read_chunk`."""
        begin = np.concatenate([[0], np.cumsum(self.chunks[number].lengths)])
        return [_labeled(self._labels, begin, self._states)]


def _joined(states: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int32), *states])


def _labeled(labels: Labels, sequences: np.ndarray, states: np.ndarray) -> Samples:
    """One-hot vectors or targets for states."""
    if labels.targets is not None:
        return Samples(sequences, labels.targets[states])
    ones = np.ones(len(states), labels.stream.dtype)
    return Samples(sequences, ones, states.astype(np.int64), np.arange(len(states) + 1))


def _check_states(labels: Labels, states: np.ndarray) -> None:
    limit = labels.stream.dim if labels.targets is None else len(labels.targets)
    wrong = states[(states >= limit) | (states < 0)]
    if len(wrong):
        raise FormatError(
            f"{labels.stream.name}: state {wrong[0]} is not below {limit}, the dimension"
        )
