"""The minibatches of HTKMLFReader: frames, whole utterances side by side, or pieces of them.

Several slots are filled from one order of utterances. Utterances that the order gives together (its
minibatch size has room for more than one) count as one sequence. Source: CNTK's
`HTKMLFReader/HTKMLFReader.cpp` (`GetMinibatchToTrainOrTest`, `ReNewBufferForMultiIO`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ....framework.base.errors import FormatError
from ..base.data import Samples, Stream, join
from ..base.layout import Layout
from ..base.order import Enumerator
from ..base.pack import FramePacker, Minibatch, SequencePacker, cut, slots_of_rank

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Slot:
    """A slot: the streams of its sequence, and how many of its samples are used."""

    streams: list[Samples] = field(default_factory=list)
    key: np.ndarray = field(default_factory=lambda: np.zeros(2, np.int64))
    length: int = 0
    used: int = 0


class _Placed:
    """The sequences of a minibatch as they are put into it."""

    def __init__(self) -> None:
        self._places: list[tuple[int, int, int]] = []
        self._streams: list[list[Samples]] = []
        self._keys: list[np.ndarray] = []

    def add(self, slot: int, step: int, what: _Slot, first: int, last: int) -> None:
        """Samples `first` to `last` of a sequence, the first of them at a step of a slot."""
        begin = step - first
        self._places.append((slot, begin, begin + what.length))
        self._streams.append([cut(samples, first, last) for samples in what.streams])
        self._keys.append(what.key)

    def minibatch(
        self, names: Sequence[str], slots: int, steps: int, end_of_epoch: bool
    ) -> Minibatch:
        """The minibatch of all that was added."""
        if not self._places:
            return Minibatch(end_of_epoch=True)
        layout = Layout(slots, steps, *np.array(self._places, np.int64).T)
        samples = [join(list(parts)) for parts in zip(*self._streams, strict=True)]
        return Minibatch(
            dict(zip(names, samples, strict=True)),
            dict.fromkeys(names, layout),
            np.array(self._keys, np.int64),
            end_of_epoch,
        )


def whole_minibatches(total: int, size: int, epoch_size: int | None) -> int:
    """The size of an epoch, in samples, of which short minibatches at the end of the data are left
    out: these samples are counted, but not given.

    Args:
        total: samples of the data.
        size: of a minibatch.
        epoch_size: in samples; None: a sweep.
    """
    short = total % size
    usable = total - short if total > size else total
    if epoch_size is None:
        return usable
    return epoch_size + (short * ((epoch_size - 1) // usable) if total >= size else 0)


class FrameMinibatches(FramePacker):
    """Single frames. Unless `partial`, short minibatches are left out."""

    def __init__(self, order: Enumerator, streams: Sequence[Stream], *, partial: bool) -> None:
        super().__init__(order, streams)
        self._partial = partial

    def take_share(self, rank: int, ranks: int) -> bool:
        """See `DataReader.take_share`. A share of a minibatch does not show whether it is whole."""
        return (self._partial or ranks == 1) and super().take_share(rank, ranks)

    def start_epoch(self, epoch: int, size: int, epoch_size: int | None = None) -> None:
        """See `Packer.start_epoch`."""
        if not self._partial:
            epoch_size = whole_minibatches(self.order.sweep_size, size, epoch_size)
        super().start_epoch(epoch, size, epoch_size)

    def read(self) -> Minibatch:
        """See `Packer.read`."""
        while True:
            batch = super().read()
            short = batch.samples != self._size and self.order.sweep_size > batch.samples
            if self._partial or not batch or not short:
                return batch


class ParallelUtterances(SequencePacker):
    """Whole utterances: one in each slot, and after them further ones that are short enough.

    When the data are used up, the slots that got no further utterance keep their last one and give
    it again for as long as the first slot has something: CNTK's count of samples includes these.

    Args:
        order: gives the utterances.
        streams: of each minibatch.
        slots: how many there are, epoch by epoch; the last number holds for all that follow.
        partial: False: the epoch ends before the samples that fill no whole minibatch.
        single: whether each utterance is a sequence, whatever the size of a minibatch.
    """

    def __init__(
        self,
        order: Enumerator,
        streams: Sequence[Stream],
        slots: Sequence[int],
        *,
        partial: bool,
        single: bool = False,
    ) -> None:
        super().__init__(order, streams)
        self._counts = list(slots)
        self._partial = partial
        self._single = single
        self._slots: list[_Slot] = []
        self.parallel = self._counts[0]
        self._over = False

    def start_epoch(self, epoch: int, size: int, epoch_size: int | None = None) -> None:
        """See `Packer.start_epoch`."""
        if not self._partial:
            epoch_size = whole_minibatches(self.order.sweep_size, size, epoch_size)
        super().start_epoch(epoch, size, epoch_size)
        count = self._counts[min(epoch, len(self._counts) - 1)]
        count = slots_of_rank(count, self.order)
        self._over = False
        self._slots = [_Slot() for _ in range(count)]
        self.parallel = count
        for number in range(count):
            self._renew(number)

    def _renew(self, number: int) -> bool:
        """Puts the next utterance into a slot; False where there is none."""
        if self._over:
            return False
        batch = self.order.next_batch(1 if self._single else self._size)
        while not len(batch.sequences) and not batch.end_of_epoch:  # they are other ranks'
            batch = self.order.next_batch(1 if self._single else self._size)
        if not len(batch.sequences):
            self._over = True
            return False
        lengths = [int(samples.begin[-1]) for samples in batch.streams]
        if len(set(lengths)) > 1:
            raise FormatError(f"streams differ in the length of an utterance: {lengths}")
        whole = np.array([0, lengths[0]])
        streams = [Samples(whole, s.values, s.indices, s.first) for s in batch.streams]
        self._slots[number] = _Slot(streams, batch.sequences[0], lengths[0])
        self._over = batch.end_of_epoch
        return True

    def read(self) -> Minibatch:
        """See `Packer.read`."""
        slots = self._slots
        if self._over and not slots[0].length:
            return Minibatch(end_of_epoch=True)
        steps = max(slot.length for slot in slots)
        placed = _Placed()
        filled = [slot.length for slot in slots]
        for number, slot in enumerate(slots):
            if slot.length:
                placed.add(number, 0, slot, 0, slot.length)
            self._next(number)
        source = 0
        while source < len(slots):
            what = slots[source]
            free = (n for n, used in enumerate(filled) if what.length + used < steps)
            to = next(free, None) if what.length else None
            if to is None:
                source += 1
                continue
            placed.add(to, filled[to], what, 0, what.length)
            filled[to] += what.length
            self._next(source)
        over = self._over and not slots[0].length
        return placed.minibatch([s.name for s in self.streams], len(slots), steps, over)

    def _next(self, number: int) -> None:
        if not self._renew(number) and number == 0:
            self._slots[0] = _Slot()


def in_pieces(batch: Minibatch, steps: int) -> list[Minibatch]:
    """A minibatch of whole sequences, all streams on one layout, in pieces of so many steps."""
    names = list(batch.streams)
    layout = batch.layouts[names[0]]
    places = list(
        zip(layout.slot.tolist(), layout.begin.tolist(), layout.end.tolist(), strict=True)
    )
    whole = [
        _Slot([s.take(np.array([n])) for s in batch.streams.values()], key, end - begin)
        for n, (key, (_, begin, end)) in enumerate(zip(batch.sequences, places, strict=True))
    ]
    pieces = []
    for start in range(0, layout.steps, steps):
        stop = min(start + steps, layout.steps)
        placed = _Placed()
        for what, (slot, begin, end) in zip(whole, places, strict=True):
            first, last = max(begin, start), min(end, stop)
            if first < last:
                placed.add(slot, first - start, what, first - begin, last - begin)
        over = batch.end_of_epoch and stop == layout.steps
        pieces.append(placed.minibatch(names, layout.parallel, stop - start, over))
    return pieces


class TruncatedUtterances(ParallelUtterances):
    """Minibatches of a fixed number of steps, which is their size. An utterance continues in the
    same slot of the next minibatch, and where it ends another one begins; a third is not begun."""

    def read(self) -> Minibatch:
        """See `Packer.read`."""
        placed = _Placed()
        for number in range(len(self._slots)):
            self._fill(number, placed)
        names = [stream.name for stream in self.streams]
        return placed.minibatch(names, len(self._slots), self._size, self._done())

    def _done(self) -> bool:
        return self._over and all(slot.used == slot.length for slot in self._slots)

    def _fill(self, number: int, placed: _Placed) -> None:
        slot = self._slots[number]
        steps = self._size
        begin = slot.used
        left = slot.length - slot.used
        slot.used += min(left, steps)
        if left:
            placed.add(number, 0, slot, begin, slot.used)
        if left > steps or not self._renew(number) or left == steps:
            return
        slot = self._slots[number]
        slot.used = min(slot.length, steps - left)
        placed.add(number, left, slot, 0, slot.used)
        if left + slot.used < steps:
            _log.warning(
                "the second utterance of a slot ends within the minibatch: %d steps stay empty",
                steps - left - slot.used,
            )
            self._renew(number)
