"""Which sequences come next: in the order of the file, or shuffled within a window.

Positions are counted in samples from the beginning of training; a sweep is one pass over all data.
Source: CNTK's `NoRandomizer.cpp`, `BlockRandomizer.cpp`, `ChunkRandomizer.cpp` and
`SequenceRandomizer.cpp`, whose orders these are, seed by seed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.sequence import repeated
from ...base.mersenne import Mersenne64, Random, numbers_of, shuffled
from .data import Deserializer, Samples, chunks_of, gather

WHOLE_SWEEP = None
"""The size of an epoch that is one sweep; also the window that reaches over all data."""


@dataclass(eq=False)
class Batch:
    """The sequences of one minibatch.

    Attributes:
        sequences: (chunk, number in it) of each, int64, [sequences, 2].
        streams: their samples, stream by stream.
        end_of_epoch: whether the epoch ends with them.
    """

    sequences: np.ndarray
    streams: list[Samples]
    end_of_epoch: bool


class Enumerator(ABC):
    """Gives sequences in some order, epoch after epoch.

    Args:
        source: the data. Chunks are read when they are needed, and kept as long as they are.

    Raises:
        FormatError: there are no samples.
    """

    def __init__(self, source: Deserializer) -> None:
        self.source = source
        self.sweep_size = source.samples
        if not self.sweep_size:
            raise FormatError("there are no samples to read")
        self.position = 0
        self._epoch_end = 0
        self._loaded: dict[int, list[Samples]] = {}
        self.rank = 0
        self.ranks = 1

    def take_share(self, rank: int, ranks: int) -> bool:
        """From the next epoch on give only the sequences of one of several ranks.

        All ranks go through the same order, which decides whose a sequence is.

        Returns:
            Whether it can.
        """
        self.rank = rank
        self.ranks = ranks
        return True

    def start_epoch(self, epoch: int, size: int | None = WHOLE_SWEEP) -> None:
        """Go to the beginning of an epoch.

        Args:
            epoch: counted from 0.
            size: of every epoch, in samples; None: a sweep.
        """
        size = self.sweep_size if size is None else size
        self.source.start_epoch(epoch)
        self._epoch_end = size * (epoch + 1)
        self.seek(size * epoch)

    @abstractmethod
    def seek(self, position: int) -> None:
        """Go to the first sequence that begins at `position` or after it."""

    @abstractmethod
    def _next(self, most: int) -> np.ndarray:
        """At least one sequence and as many as have not more than `most` samples; moves on.

        Returns:
            (chunk, number in it) of each, int64, [sequences, 2].
        """

    @abstractmethod
    def _next_share(self, most: int, own: int) -> np.ndarray:
        """As `_next`, where there are several ranks.

        Args:
            most: samples of all ranks to go over. own: samples to return, at most.

        Returns:
            (chunk, number in it) of the sequences of this rank, which may be none.
        """

    @abstractmethod
    def _needed(self) -> set[int]:
        """Chunks that will be needed soon, besides the present minibatch's."""

    def next_batch(self, size: int, own: int | None = None) -> Batch:
        """The next sequences: whole ones, together not over `size` samples, but at least one.

        A minibatch crosses neither the end of the epoch nor the end of a sweep. Where there are
        several ranks it may be empty before the epoch has ended.

        Args:
            size: of a minibatch of all ranks together.
            own: of this rank's minibatch alone, which then takes the place of `size`; None: `size`.
        """
        if self.position >= self._epoch_end:
            return Batch(np.zeros((0, 2), np.int64), [], True)
        if self.ranks == 1:
            sequences = self._next(self._wanted(size if own is None else own))
        elif own is None:
            sequences = self._next_share(self._wanted(size), size)
        else:
            sequences = self._next_share(self._wanted(self._epoch_end), own)
        return Batch(sequences, self._load(sequences), self.position >= self._epoch_end)

    def _wanted(self, size: int) -> int:
        """Samples of the next minibatch, at most; `size`: of a minibatch."""
        left_in_sweep = self.sweep_size - self.position % self.sweep_size
        return min(size, self._epoch_end - self.position, left_in_sweep)

    def _load(self, sequences: np.ndarray) -> list[Samples]:
        if not len(sequences):
            return []
        used = set(chunks_of(sequences))
        needed = used | self._needed()
        self._loaded = {n: chunk for n, chunk in self._loaded.items() if n in needed}
        missing = sorted(used - self._loaded.keys())
        self._loaded |= zip(missing, self.source.read_chunks(missing), strict=True)
        return gather(self._loaded, sequences)


class FileOrder(Enumerator):
    """Sequences in the order of the file, sweep after sweep."""

    def __init__(self, source: Deserializer) -> None:
        super().__init__(source)
        self._first_sample = np.cumsum([0] + [chunk.samples for chunk in source.chunks]).tolist()
        self._first_sequence = np.cumsum([0] + [len(chunk.lengths) for chunk in source.chunks])
        self._chunk = self._number = self._count = 0
        self._lengths: list[int] = []

    def seek(self, position: int) -> None:
        """See `Enumerator.seek`."""
        within = position % self.sweep_size
        self._open(bisect_right(self._first_sample, within) - 1)
        here = self._first_sample[self._chunk]
        while here < within:
            here += self._lengths[self._number]
            self._advance()
        self.position = position - within + here
        self._count = int(self._first_sequence[self._chunk]) + self._number

    def _open(self, chunk: int) -> None:
        self._chunk = chunk % len(self.source.chunks)
        self._number = 0
        self._lengths = self.source.chunks[self._chunk].lengths.tolist()

    def _advance(self) -> None:
        self._number += 1
        if self._number >= len(self._lengths):
            self._open(self._chunk + 1)

    def _next(self, most: int) -> np.ndarray:
        sequences: list[tuple[int, int]] = []
        taken = 0
        while taken < most:
            length = self._lengths[self._number]
            if sequences and taken + length > most:
                break
            sequences.append((self._chunk, self._number))
            taken += length
            self._advance()
        self.position += taken
        return np.array(sequences, np.int64)

    def _next_share(self, most: int, own: int) -> np.ndarray:
        """See `Enumerator._next_share`: sequences go to the ranks in turn."""
        sequences: list[tuple[int, int]] = []
        over = taken = 0
        while over < most and taken < own:
            length = self._lengths[self._number]
            if sequences and (over + length > most or taken + length > own):
                break
            if self._count % self.ranks == self.rank:
                sequences.append((self._chunk, self._number))
                taken += length
            over += length
            self._count += 1
            self._advance()
        self.position += over
        return np.array(sequences, np.int64).reshape(-1, 2)

    def _needed(self) -> set[int]:
        return {self._chunk}


class BlockShuffle(Enumerator):
    """Chunks in random order, and sequences exchanged within a window of chunks around their own.

    Every sweep has an order of its own, which depends on its number alone.

    Args:
        source: the data.
        window: how many samples a sequence may move, about; None: anywhere.
        generator: makes the source of random numbers from a seed.
        seeds: added to the number of the sweep, for the seeds of chunks and of sequences.
    """

    def __init__(
        self,
        source: Deserializer,
        window: int | None = WHOLE_SWEEP,
        generator: Callable[[int], Random] = Mersenne64,
        seeds: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(source)
        self._half = (window if window is not None else 2 * self.sweep_size + 2) // 2
        self._generator = generator
        self._seeds = seeds
        self._counts = np.array([len(chunk.lengths) for chunk in source.chunks], np.int64)
        self._sweep = -1
        self._order = np.zeros((0, 2), np.int64)
        self._home = np.zeros(0, np.int64)
        self._starts = np.zeros(1, np.int64)
        self._cursor = 0

    def seek(self, position: int) -> None:
        """See `Enumerator.seek`."""
        self._shuffle(position // self.sweep_size)
        within = position % self.sweep_size
        self._cursor = int(np.searchsorted(self._starts, within))
        self.position = self._sweep * self.sweep_size + int(self._starts[self._cursor])

    def _next(self, most: int) -> np.ndarray:
        if self.position // self.sweep_size != self._sweep:
            self.seek(self.position)
        begin, starts = self._cursor, self._starts
        end = int(np.searchsorted(starts, starts[begin] + most, side="right")) - 1
        self._cursor = min(max(end, begin + 1), len(self._order))
        self.position += int(starts[self._cursor] - starts[begin])
        return self._order[begin : self._cursor]

    def _next_share(self, most: int, own: int) -> np.ndarray:
        """See `Enumerator._next_share`: chunks, in their random order, go to the ranks in turn."""
        begin = self._cursor
        if self.position // self.sweep_size != self._sweep:
            self.seek(self.position)
            begin = self._cursor
        if own >= most:
            taken = self._next(most)
            return taken[self._home[begin : self._cursor] % self.ranks == self.rank]
        over = read = 0
        while self._cursor < len(self._order) and over < most and read < own:
            at = self._cursor
            length = int(self._starts[at + 1] - self._starts[at])
            if at > begin and (over + length > most or read + length > own):
                break
            over += length
            read += length if self._home[at] % self.ranks == self.rank else 0
            self._cursor += 1
        self.position += over
        taken = slice(begin, self._cursor)
        return self._order[taken][self._home[taken] % self.ranks == self.rank]

    def _needed(self) -> set[int]:
        """The chunks in the window of the chunk at the cursor."""
        place = bisect_right(self._positions, self._cursor) - 1
        low, high = self._windows[min(place, len(self._windows) - 1)]
        return set(self._chunks[low:high].tolist())

    def _shuffle(self, sweep: int) -> None:
        if sweep == self._sweep:
            return
        self._sweep = sweep
        chunks = self.source.chunks
        self._chunks = shuffled(len(chunks), self._generator(sweep + self._seeds[0]))
        self._positions = np.cumsum([0, *self._counts[self._chunks]])
        self._windows = _windows([chunks[c].samples for c in self._chunks], self._half)
        home = repeated(np.arange(len(chunks)), np.diff(self._positions))
        order = self._exchanged(home, self._generator(sweep + self._seeds[1]))
        place = self._home = home[order]
        self._order = np.stack([self._chunks[place], order - self._positions[place]], axis=1)
        lengths = np.concatenate([chunks[c].lengths for c in self._chunks])[order]
        self._starts = np.concatenate([[0], np.cumsum(lengths)])

    def _exchanged(self, home: np.ndarray, random: Random) -> np.ndarray:
        """A new order of the sequences, which are numbered chunk after chunk.

        Each sequence in turn is exchanged with a random one. Both must be allowed in the other's
        place; places are tried until one is found.

        Args:
            home: the place, in the order of chunks, of each sequence's chunk.
        """
        count = len(home)
        windows = self._windows
        order = list(range(count))
        if all(window == (0, len(windows)) for window in windows):
            # Each sequence may go anywhere: one draw for each.
            targets = (random.draw(count) % np.uint64(max(count, 1))).tolist()
            for t, j in enumerate(targets):
                order[t], order[j] = order[j], order[t]
            return np.array(order, np.int64)
        numbers = numbers_of(random)
        place_of = home.tolist()
        positions = self._positions.tolist()
        for t in range(count):
            low, high = windows[place_of[t]]
            first, last = positions[low], positions[high]
            while True:
                j = first + next(numbers) % (last - first)
                there = windows[place_of[j]]
                if not low <= place_of[order[j]] < high:
                    continue
                if there[0] <= place_of[order[t]] < there[1]:
                    break
            order[t], order[j] = order[j], order[t]
        return np.array(order, np.int64)


def _windows(sizes: list[int], half: int) -> list[tuple[int, int]]:
    """For each chunk the range of chunks whose sequences may take its place."""
    starts = np.cumsum([0, *sizes]).tolist()
    windows: list[tuple[int, int]] = []
    low, high = 0, 1
    for place in range(len(sizes)):
        while starts[place] - starts[low] > half:
            low += 1
        low = min(low, place)
        high = max(high, place + 1)
        while high < len(sizes) and starts[high + 1] - starts[place] < half:
            high += 1
        windows.append((low, high))
    return windows
