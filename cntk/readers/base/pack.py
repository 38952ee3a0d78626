"""From sequences to minibatches.

Source: CNTK's `FramePacker`, `SequencePacker` and `TruncatedBPTTPacker`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ....framework.base.errors import RunError, ShapeError
from ...lattices.lattice import Lattices
from .data import Samples, Stream, gather, join
from .layout import Layout, frames, packed
from .order import Batch, Enumerator


@dataclass(eq=False)
class Minibatch:
    """One minibatch.

    Attributes:
        streams: the samples of each stream, by name: a row for each sample, sequence after
            sequence, without gaps. In truncated training a `Samples` holds the pieces of sequences
            that lie in this minibatch.
        layouts: where the samples of each stream lie.
        sequences: (chunk, number) of each sequence, int64, [sequences, 2].
        end_of_epoch: whether it is the last one of its epoch.
        lattices: the recognized words of each sequence, where the reader has such files.
    """

    streams: Mapping[str, Samples] = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    sequences: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    end_of_epoch: bool = False
    lattices: Lattices | None = None

    @property
    def samples(self) -> int:
        """Samples of the longest stream."""
        return max((layout.samples for layout in self.layouts.values()), default=0)

    @property
    def columns(self) -> int:
        """Columns of the largest layout, gaps included: the N of CNTK's learners."""
        return max((layout.columns for layout in self.layouts.values()), default=0)

    def __bool__(self) -> bool:
        """Whether it holds anything; the pack at an epoch's end does not."""
        return bool(self.streams)


class Packer(ABC):
    """Gives minibatches, epoch after epoch.

    Attributes:
        streams: of each minibatch.
        parallel: slots, where their number is given and not found from the sequences; else 1.
    """

    streams: list[Stream]
    parallel = 1

    @abstractmethod
    def start_epoch(self, epoch: int, size: int, epoch_size: int | None = None) -> None:
        """Begin an epoch.

        Args:
            epoch: counted from 0.
            size: of a minibatch, in samples.
            epoch_size: in samples; None: one sweep.
        """

    def take_share(self, rank: int, ranks: int) -> bool:
        """See `DataReader.take_share`."""
        return ranks == 1

    @abstractmethod
    def read(self) -> Minibatch:
        """The next minibatch; an empty one where the epoch has no more samples."""

    def close(self) -> None:  # noqa: B027  many packers have nothing to let go of
        """Let go of files and threads."""

    def records(self, stream: int, first: int, count: int) -> Samples:
        """Sequences of the stream with this number, in the order of the files.

        Raises:
            RunError: there are fewer; or sequences cannot be given by number.
        """
        raise RunError("this reader cannot give sequences by number")


class SequencePacker(Packer):
    """Whole sequences, packed into as few slots as hold them.

    Args:
        order: gives the sequences.
        streams: of each minibatch.
        local: whether the ranks of a parallel training count the samples of their own sequences,
            each up to its part of the minibatch size (`localTimeline`), and not all sequences.
    """

    def __init__(
        self, order: Enumerator, streams: Sequence[Stream], *, local: bool = False
    ) -> None:
        self.order = order
        self.streams = list(streams)
        self._local = local

    def take_share(self, rank: int, ranks: int) -> bool:
        """See `DataReader.take_share`."""
        return self.order.take_share(rank, ranks)

    def start_epoch(self, epoch: int, size: int, epoch_size: int | None = None) -> None:
        """See `Packer.start_epoch`."""
        self._size = size
        self._own = None
        if self._local and self.order.ranks > 1:
            self._own = max(part_of(size, self.order.rank, self.order.ranks), 1)
        self.order.start_epoch(epoch, epoch_size)

    def read(self) -> Minibatch:
        """See `Packer.read`."""
        batch = self.order.next_batch(self._size, self._own)
        if not len(batch.sequences):
            return Minibatch(end_of_epoch=batch.end_of_epoch)
        names = [stream.name for stream in self.streams]
        layouts = self._layouts(batch.streams)
        return Minibatch(
            dict(zip(names, batch.streams, strict=True)),
            dict(zip(names, layouts, strict=True)),
            batch.sequences,
            batch.end_of_epoch,
        )

    def names(self, batch: Minibatch) -> list[str]:
        """The names of the sequences of a minibatch; its source has names."""
        names = []
        for chunk, number in batch.sequences.tolist():
            keys = self.order.source.chunks[chunk].keys
            assert keys is not None
            names.append(keys[number])
        return names

    def close(self) -> None:
        """See `Packer.close`."""
        self.order.source.close()

    def records(self, stream: int, first: int, count: int) -> Samples:
        """See `Packer.records`."""
        source = self.order.source
        begin = np.cumsum([0] + [len(chunk.lengths) for chunk in source.chunks])
        if first < 0 or count < 1 or first + count > begin[-1]:
            raise RunError(f"sequences {first} to {first + count} are wanted of {begin[-1]}")
        numbers = np.arange(first, first + count)
        chunk = np.searchsorted(begin, numbers, side="right") - 1
        needed = np.unique(chunk).tolist()
        chunks = dict(zip(needed, source.read_chunks(needed), strict=True))
        places = np.stack([chunk, numbers - begin[chunk]], axis=1)
        return gather(chunks, places)[stream]

    def _layouts(self, streams: Sequence[Samples]) -> list[Layout]:
        """Streams whose sequences have the same lengths share a layout."""
        layouts: list[Layout] = []
        for samples in streams:
            lengths = samples.lengths
            for other, layout in zip(streams, layouts, strict=False):
                if np.array_equal(other.lengths, lengths):
                    layouts.append(layout)
                    break
            else:
                layouts.append(packed(lengths))
        return layouts


class FramePacker(SequencePacker):
    """Single samples, each a sequence by itself."""

    def _layouts(self, streams: Sequence[Samples]) -> list[Layout]:
        for stream, samples in zip(self.streams, streams, strict=True):
            if np.any(samples.lengths != 1):
                raise ShapeError(
                    f"frame mode takes sequences of one sample, but {stream.name} has "
                    f"one of {int(samples.lengths.max())}"
                )
        return [frames(len(samples.begin) - 1) for samples in streams]


@dataclass(eq=False)
class _Waiting:
    """A sequence in a slot: its samples, one `Samples` for each stream, and how many are used."""

    key: np.ndarray
    streams: list[Samples]
    length: int
    used: int = 0


class TruncatedPacker(SequencePacker):
    """Minibatches of a fixed number of steps. Each slot is filled with one sequence after the
    other; a sequence continues in the same slot of the next minibatch.

    Args:
        order: gives the sequences.
        streams: of each minibatch.
        length: steps of a minibatch. The size of a minibatch divided by it is the number of slots.
            0: the size is the number of steps.
        slots: how many there are, epoch by epoch (the last number holds for all that follow), where
            `length` is 0.
    """

    def __init__(
        self,
        order: Enumerator,
        streams: Sequence[Stream],
        length: int,
        slots: Sequence[int] = (1,),
    ) -> None:
        super().__init__(order, streams)
        if length < 0:
            raise ShapeError(f"the truncation length is {length}, not above 0")
        self._given = length
        self._counts = list(slots)
        self._length = length
        self._slots: list[deque[_Waiting]] = []

    def start_epoch(self, epoch: int, size: int, epoch_size: int | None = None) -> None:
        """See `Packer.start_epoch`. Samples of an earlier epoch in the slots are dropped."""
        super().start_epoch(epoch, size, epoch_size)
        self._length = self._given or size
        count = max(1, size // self._length)
        if not self._given:
            count = self._counts[min(epoch, len(self._counts) - 1)]
        count = slots_of_rank(count, self.order)
        self._slots = [deque() for _ in range(count)]
        for slot in self._slots:
            self._fill(slot)

    def read(self) -> Minibatch:
        """See `Packer.read`."""
        for slot in self._slots:
            self._fill(slot)
        places: list[tuple[int, int, int]] = []  # slot, begin, end
        pieces: list[list[Samples]] = []
        keys: list[np.ndarray] = []
        for number, slot in enumerate(self._slots):
            step = 0
            while slot and step < self._length:
                first = slot[0]
                count = min(first.length - first.used, self._length - step)
                places.append((number, step - first.used, step - first.used + first.length))
                pieces.append([cut(s, first.used, first.used + count) for s in first.streams])
                keys.append(first.key)
                step += count
                first.used += count
                if first.used == first.length:
                    slot.popleft()
        if not places:
            return Minibatch(end_of_epoch=True)
        layout = Layout(len(self._slots), self._length, *np.array(places, np.int64).T)
        names = [stream.name for stream in self.streams]
        streams = [join(list(parts)) for parts in zip(*pieces, strict=True)]
        return Minibatch(
            dict(zip(names, streams, strict=True)),
            dict.fromkeys(names, layout),
            np.array(keys, np.int64),
            not any(self._slots),
        )

    def _fill(self, slot: deque[_Waiting]) -> None:
        """Takes sequences until the slot has more samples than a minibatch wants."""
        while sum(s.length - s.used for s in slot) <= self._length:
            batch = next_sequence(self.order)
            if not len(batch.sequences):
                return
            lengths = [int(samples.lengths[0]) for samples in batch.streams]
            if len(set(lengths)) > 1:
                given = ", ".join(
                    f"{stream.name} {length}"
                    for stream, length in zip(self.streams, lengths, strict=True)
                )
                raise ShapeError(
                    f"truncated back-propagation takes streams of equal length, but a sequence "
                    f"has samples: {given}"
                )
            slot.append(_Waiting(batch.sequences[0], batch.streams, lengths[0]))
            if batch.end_of_epoch:
                return


def part_of(count: int, rank: int, ranks: int) -> int:
    """The part of `count` things that a rank gets; the first ranks get what is left over."""
    return count // ranks + (rank < count % ranks)


def slots_of_rank(count: int, order: Enumerator) -> int:
    """The slots of this rank, of `count` of all.

    Raises:
        RunError: there are fewer than ranks.
    """
    if order.ranks > max(count, 1):
        raise RunError(
            f"Too many workers for minibatch size; please increase minibatch size or decrease "
            f"number of workers: {order.ranks} ranks share {count} sequences side by side"
        )
    return part_of(count, order.rank, order.ranks)


def next_sequence(order: Enumerator) -> Batch:
    """The next sequence of this rank, alone; none at the end of the epoch."""
    while True:
        batch = order.next_batch(1, 1)
        if len(batch.sequences) or batch.end_of_epoch:
            return batch


def cut(samples: Samples, begin: int, end: int) -> Samples:
    """Samples from `begin` to `end` of a single sequence."""
    bounds = np.array([0, end - begin])
    if samples.first is None:
        return Samples(bounds, samples.values[begin:end])
    assert samples.indices is not None
    first = samples.first[begin : end + 1]
    elements = slice(int(first[0]), int(first[-1]))
    return Samples(bounds, samples.values[elements], samples.indices[elements], first - first[0])
