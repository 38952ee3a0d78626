"""Streams, samples and chunks, which deserializers, enumerators and packers exchange.

Samples are rows. A chunk holds the samples of many sequences one after the other: no object is made
for a sequence or a sample.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ....framework.base.python.cached import cached_property
from ....framework.base.sequence import repeated
from ....framework.base.untrusted.limits import check_limit


@dataclass(frozen=True)
class Stream:
    """One input of the network as a file has it.

    Attributes:
        name: as the network calls it.
        dim: numbers in a sample; 0: as many as the network's input of this name has.
        sparse: whether samples are given as (index, value) pairs.
        dtype: of the values.
        shape: of a sample, the first dimension fastest; (dim,) if the file does not say more.
    """

    name: str
    dim: int
    sparse: bool = False
    dtype: np.dtype = np.dtype(np.float32)
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        object.__setattr__(self, "shape", tuple(self.shape) or (self.dim,))


@dataclass(eq=False)
class Samples:
    """Samples of one stream, sequence after sequence.

    Attributes:
        begin: where each sequence begins, int64, [sequences + 1].
        values: dense: [samples, dim]; sparse: the values of all elements, [elements].
        indices: sparse: the dimension of each element, int64, [elements]; dense: None.
        first: sparse: where the elements of each sample begin, int64, [samples + 1].
    """

    begin: np.ndarray
    values: np.ndarray
    indices: np.ndarray | None = None
    first: np.ndarray | None = None

    @property
    def lengths(self) -> np.ndarray:
        """Samples of each sequence."""
        return np.diff(self.begin)

    @cached_property
    def of_singles(self) -> bool:
        """Whether each sequence is one sample and, where samples are sparse, each one element."""
        return all(
            np.array_equal(bounds, np.arange(len(bounds)))
            for bounds in (self.begin, self.first)
            if bounds is not None
        )

    def take(self, sequences: np.ndarray) -> Samples:
        """The sequences with these numbers, in this order."""
        if self.of_singles:  # frames, whose minibatches come with every step of training
            begin = np.arange(len(sequences) + 1)
            values = self.values.take(sequences, 0)
            if self.indices is None:
                return Samples(begin, values)
            return Samples(begin, values, self.indices.take(sequences), begin)
        begin, rows = ranges(self.begin[sequences], self.begin[sequences + 1])
        if self.first is None:
            return Samples(begin, self.values[rows])
        assert self.indices is not None
        first, elements = ranges(self.first[rows], self.first[rows + 1])
        return Samples(begin, self.values[elements], self.indices[elements], first)

    def dense(self, dim: int) -> np.ndarray:
        """All samples, [samples, dim]; elements that occur twice are added."""
        if self.first is None:
            return self.values
        samples = len(self.first) - 1
        size = samples * dim * self.values.dtype.itemsize
        check_limit("run", size, f"{samples} samples of {dim} numbers, given as indices")
        out = np.zeros((samples, dim), self.values.dtype)
        counts = np.diff(self.first)
        assert self.indices is not None
        if (counts == 1).all():  # then none occurs twice
            out[np.arange(samples), self.indices] = self.values
        else:
            np.add.at(out, (repeated(np.arange(samples), counts), self.indices), self.values)
        return out


def ranges(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranges put one after the other: where each begins then, and the numbers in them."""
    lengths = end - begin
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    numbers = np.arange(offsets[-1]) + repeated(begin - offsets[:-1], lengths)
    return offsets, numbers


def join(parts: Sequence[Samples]) -> Samples:
    """The sequences of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]

    def chained(arrays: list[np.ndarray]) -> np.ndarray:
        ends = np.cumsum([0] + [array[-1] for array in arrays])
        moved = [a[:-1] + end for a, end in zip(arrays, ends[:-1], strict=True)]
        return np.concatenate([*moved, ends[-1:]])

    begin = chained([part.begin for part in parts])
    values = np.concatenate([part.values for part in parts])
    if parts[0].first is None:
        return Samples(begin, values)
    indices, first = [], []
    for part in parts:
        assert part.indices is not None and part.first is not None
        indices.append(part.indices)
        first.append(part.first)
    return Samples(begin, values, np.concatenate(indices), chained(first))


def chunks_of(sequences: np.ndarray) -> list[int]:
    """The numbers of the chunks that sequences lie in, in order.

    Args:
        sequences: (chunk, number in it) of each, int64, [sequences, 2].
    """
    numbers = sequences[:, 0]
    if len(numbers) and (numbers == numbers[0]).all():  # a tenth of the time of `np.unique`
        return [int(numbers[0])]
    return np.unique(numbers).tolist()


def gather(chunks: Mapping[int, Sequence[Samples]], sequences: np.ndarray) -> list[Samples]:
    """Sequences of several chunks, stream by stream.

    Args:
        chunks: the streams of each chunk that is needed.
        sequences: (chunk, number in it) of each, int64, [sequences, 2].
    """
    needed = chunks_of(sequences)
    if len(needed) == 1:
        return [samples.take(sequences[:, 1]) for samples in chunks[needed[0]]]
    back = np.argsort(np.argsort(sequences[:, 0], kind="stable"), kind="stable")
    parts = [
        [samples.take(sequences[sequences[:, 0] == number, 1]) for samples in chunks[number]]
        for number in needed
    ]
    return [join(stream).take(back) for stream in zip(*parts, strict=True)]


@dataclass(eq=False)
class ChunkInfo:
    """The sequences of a chunk, known before it is read.

    Attributes:
        lengths: samples of each sequence, int64, [sequences].
        keys: name of each sequence, so that several files can be joined; None: their numbers.
    """

    lengths: np.ndarray
    keys: Sequence[str] | None = None

    @property
    def samples(self) -> int:
        """Samples of all sequences."""
        return int(self.lengths.sum())


class Deserializer(ABC):
    """A file, or a set of files, of sequences.

    Attributes:
        streams: in the order of `read_chunk`.
        chunks: the parts in which it is read.
    """

    streams: list[Stream]
    chunks: list[ChunkInfo]

    @abstractmethod
    def read_chunk(self, number: int) -> list[Samples]:
        """The samples of a chunk, a `Samples` for each stream.

        Raises:
            FormatError: the file is wrong.
        """

    def read_chunks(self, numbers: Sequence[int]) -> list[list[Samples]]:
        """Several chunks; a source that can read them at the same time does so."""
        return [self.read_chunk(number) for number in numbers]

    def start_epoch(self, epoch: int) -> None:  # noqa: B027  few sources change
        """Called at the beginning of an epoch; some sources give other samples in each."""

    def close(self) -> None:  # noqa: B027  most sources open files as they read
        """Let go of files and threads."""

    @property
    def samples(self) -> int:
        """Samples in all chunks: the length of a sweep."""
        return sum(chunk.samples for chunk in self.chunks)
