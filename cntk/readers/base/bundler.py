"""The bundler: sources read side by side, whose sequences are matched by name.

Source: CNTK's `ReaderLib/Bundler.cpp`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.sequence import repeated
from .data import ChunkInfo, Deserializer, Samples, gather

_log = logging.getLogger(__name__)

_DIGITS = re.compile(r"0*(\d*)(?<=\d)")
_SHOWN = 5  # names of sequences that are shown


class _Index:
    """Where the sequences of a source are."""

    def __init__(self, source: Deserializer, numeric: bool) -> None:
        self.source = source
        counts = [len(chunk.lengths) for chunk in source.chunks]
        self._begin = np.cumsum([0, *counts])
        # The last number, which -1 selects, means a sequence that is missing.
        self.lengths = np.concatenate([*(chunk.lengths for chunk in source.chunks), [0]])
        self._numbers: dict[str, int] = {}
        for first, chunk in zip(self._begin, source.chunks, strict=False):
            for place, name in enumerate(_names(chunk, int(first), numeric)):
                self._numbers[name] = int(first) + place
        self._loaded: dict[int, list[Samples]] = {}

    def find(self, names: Sequence[str]) -> np.ndarray:
        """The number of each sequence; -1 where there is none of this name."""
        return np.array([self._numbers.get(name, -1) for name in names], np.int64)

    def read(self, numbers: np.ndarray) -> list[Samples]:
        """These sequences. The chunks that hold them stay in memory until the next call."""
        chunk = np.searchsorted(self._begin, numbers, side="right") - 1
        needed = np.unique(chunk).tolist()
        self._loaded = {n: self._loaded[n] for n in needed if n in self._loaded}
        for number in needed:
            if number not in self._loaded:
                self._loaded[number] = self.source.read_chunk(number)
        if len(needed) == 1 and _is_whole(self.source.chunks[needed[0]], numbers - numbers[:1]):
            return self._loaded[needed[0]]
        return gather(self._loaded, np.stack([chunk, numbers - self._begin[chunk]], axis=1))


def _names(chunk: ChunkInfo, first: int, numeric: bool) -> Sequence[str]:
    """The names of the sequences of a chunk; their numbers where they have none.

    Args:
        numeric: whether names are numbers: only the digits that they begin with count.
    """
    if chunk.keys is None:
        return [str(first + place) for place in range(len(chunk.lengths))]
    if not numeric:
        return chunk.keys
    names = []
    for name in chunk.keys:
        digits = _DIGITS.match(name)
        if digits is None:
            raise FormatError(
                f"the name {name!r} of a sequence is no number (useNumericSequenceKeys = true)"
            )
        names.append(digits[1] or "0")
    return names


def _is_whole(chunk: ChunkInfo, places: np.ndarray) -> bool:
    """Whether these are all sequences of a chunk in their order."""
    return len(places) == len(chunk.lengths) and np.array_equal(places, np.arange(len(places)))


class Bundler(Deserializer):
    """Sequences of a first source, each with the sequences of the same name of other sources.

    Args:
        sources: the first one tells chunks and order. A sequence that is missing from another one
            is left out.
        expanded: numbers of sources whose sequences have one sample, which stands for every sample
            of the first source.
        cleanse: False: a missing sequence is an error.
        equal: whether streams must agree in the length of a sequence; where they do not, it counts
            as missing.
        numeric: whether names are numbers, so that 0012 and 12 are the same.

    Raises:
        FormatError: no sequence is left, one is missing that must not, or a name is no number.
    """

    def __init__(
        self,
        sources: Sequence[Deserializer],
        *,
        expanded: Collection[int] = (),
        cleanse: bool = True,
        equal: bool = False,
        numeric: bool = False,
    ) -> None:
        self._first, *others = sources
        self._expanded = [number in expanded for number in range(1, len(sources))]
        self.streams = [stream for source in sources for stream in source.streams]
        self._others = [_Index(source, numeric) for source in others]
        self.chunks = []
        self._parts: list[tuple[int, np.ndarray, list[np.ndarray]]] = []
        missing: list[str] = []
        begin = 0
        for number, chunk in enumerate(self._first.chunks):
            names = _names(chunk, begin, numeric)
            begin += len(names)
            indices = [index.find(names) for index in self._others]
            there = np.all([numbers >= 0 for numbers in indices], axis=0)
            lengths = chunk.lengths.copy()
            for index, numbers, single in zip(self._others, indices, self._expanded, strict=True):
                theirs = index.lengths[numbers]
                if single:
                    there &= theirs == 1
                elif equal:
                    there &= theirs == chunk.lengths
                else:
                    lengths = np.maximum(lengths, theirs)
            missing += [names[place] for place in np.flatnonzero(~there).tolist()]
            if not there.any():
                continue
            matched = np.flatnonzero(there)
            keys = names if chunk.keys is None else chunk.keys
            self.chunks.append(
                ChunkInfo(lengths[matched], [keys[place] for place in matched.tolist()])
            )
            self._parts.append((number, matched, [numbers[matched] for numbers in indices]))
        if missing or not self.chunks:
            shown = ", ".join(missing[:_SHOWN])
            text = f"{len(missing)} of {begin} sequences have no match in all inputs: {shown}"
            if not cleanse or not self.chunks:
                raise FormatError(text)
            _log.warning("%s; left out", text)

    def start_epoch(self, epoch: int) -> None:
        """See `Deserializer.start_epoch`."""
        for source in (self._first, *(index.source for index in self._others)):
            source.start_epoch(epoch)

    def close(self) -> None:
        """See `Deserializer.close`."""
        for source in (self._first, *(index.source for index in self._others)):
            source.close()

    def read_chunk(self, number: int) -> list[Samples]:
        """See `Deserializer.read_chunk`."""
        original, matched, others = self._parts[number]
        parts = self._first.read_chunk(original)
        if not _is_whole(self._first.chunks[original], matched):
            parts = [samples.take(matched) for samples in parts]
        lengths, begin = parts[0].lengths, parts[0].begin
        for index, numbers, single in zip(self._others, others, self._expanded, strict=True):
            theirs = index.read(numbers)
            if single:
                theirs = [Samples(begin, repeated(s.values, lengths, axis=0)) for s in theirs]
            parts = [*parts, *theirs]
        return parts


class SingleSamples(Deserializer):
    """The samples of a source, each a sequence by itself."""

    def __init__(self, source: Deserializer) -> None:
        self._source = source
        self.streams = source.streams
        self.chunks = [ChunkInfo(np.ones(chunk.samples, np.int64)) for chunk in source.chunks]
        self.start_epoch = source.start_epoch
        self.close = source.close

    def read_chunk(self, number: int) -> list[Samples]:
        """See `Deserializer.read_chunk`."""
        single = np.arange(self.chunks[number].samples + 1)
        return [replace(samples, begin=single) for samples in self._source.read_chunk(number)]
