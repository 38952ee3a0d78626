"""Samples of each minibatch as CNTK's own end-to-end tests of speech logged them.

Orders, slots and packing together decide how many samples a minibatch has. All that they depend on
is how long the utterances are: the 948 of the corpus AN4, in `golden/an4_lengths.txt`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opscope.cntk.readers.base.data import ChunkInfo, Deserializer, Samples, Stream
from opscope.cntk.readers.base.order import BlockShuffle
from opscope.cntk.readers.base.pack import SequencePacker, TruncatedPacker
from opscope.cntk.readers.htk.order import block_shuffle
from opscope.cntk.readers.htk.pack import ParallelUtterances, TruncatedUtterances

LENGTHS = Path(__file__).resolve().parents[2] / "golden" / "an4_lengths.txt"
CHUNK = 90000  # a chunk ends with the utterance that takes it beyond so many frames


class Lengths(Deserializer):
    """Utterances without contents."""

    def __init__(self):
        self.streams = [Stream("features", 1)]
        chunks, total = [[]], 0
        for length in map(int, LENGTHS.read_text().split()):
            if total > CHUNK:
                chunks.append([])
                total = 0
            chunks[-1].append(length)
            total += length
        self.chunks = [ChunkInfo(np.array(chunk, np.int64)) for chunk in chunks]

    def read_chunk(self, number):
        begin = np.concatenate([[0], np.cumsum(self.chunks[number].lengths)])
        return [Samples(begin, np.zeros((begin[-1], 1), np.float32))]


def counts(packer, number, epoch_size):
    """Samples of all minibatches of an epoch."""
    packer.start_epoch(number, 20, epoch_size)
    found = []
    while batch := packer.read():
        found.append(batch.samples)
        if batch.end_of_epoch:
            break
    return found


def test_the_corpus():
    source = Lengths()
    assert [len(chunk.lengths) for chunk in source.chunks][0] < 948 and source.samples == 252734


def old(kind, slots):
    source = Lengths()
    order = block_shuffle(source, None, frame_mode=False, mersenne=True)
    return kind(order, source.streams, [slots], partial=True)


def test_whole_utterances_in_two_slots():
    """Speech/LSTM/FullUtterance: HTKMLFReader, epochs of 2560 frames."""
    packer = old(ParallelUtterances, 2)
    assert counts(packer, 0, 2560) == [886, 226, 526, 946]
    assert counts(packer, 1, 2560) == [594, 386, 884, 946]


@pytest.mark.parametrize("reader", ["HTKMLFReader", "HTKDeserializers"])
def test_truncated_utterances_in_32_slots(reader):
    """Speech/LSTM/Truncated and Speech/HTKDeserializers/LSTM/Truncated: pieces of 20 frames; the
    logs have the sums of ten minibatches."""
    if reader == "HTKMLFReader":
        packer = old(TruncatedUtterances, 32)
    else:
        source = Lengths()
        packer = TruncatedPacker(BlockShuffle(source), source.streams, 0, [32])
    logged = [
        [6400, 6400, 5494, 2062],
        [6400, 6400, 5626, 1816, 238],
        [6400, 6400, 5748, 1828],
        [6400, 6400, 5882, 1682],
    ]
    for number, expected in enumerate(logged):
        found = counts(packer, number, 20480)
        tens = [sum(found[at : at + 10]) for at in range(0, len(found) - len(found) % 10, 10)]
        assert tens == expected


def test_whole_utterances_of_a_composite_reader():
    """Speech/HTKDeserializers/LSTM/FullUtterance: epochs of 2560 frames."""
    source = Lengths()
    packer = SequencePacker(BlockShuffle(source), source.streams)
    assert counts(packer, 0, 2560) == [418, 468, 78, 148, 238, 288, 618, 328]
    assert counts(packer, 1, 2560) == [138, 328, 128, 158, 228, 498, 288, 398, 98, 548]
