"""The ranks of a training, seen from one of them: what it reads, and what it hears of the others.

Source: CNTK's `SGDLib/SimpleDistGradAggregator.h`, `DistGradHeader.h`, `MASGD.h` and
`DataReaderHelpers.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.communicator import Communicator
from ..readers.base.pack import Minibatch
from ..readers.base.reader import DataReader
from .options import ASYNCHRONOUS, AVERAGING, BLOCKS, GRADIENTS, NONE, ParallelOptions

EMPTY = Minibatch()


@dataclass(frozen=True)
class Sums:
    """What all ranks say of one minibatch.

    Attributes:
        reading: how many ranks have not come to the end of their data.
        samples: of the criterion. columns: what learners call N.
        values: sum and samples of each node.
    """

    reading: int
    samples: int
    columns: int
    values: list[tuple[float, int]]


@dataclass
class Ranks:
    """The ranks of a training.

    Attributes:
        communicator: reaches the others.
        options: of the section `ParallelTrain`.
        epochs: of the whole training.
    """

    communicator: Communicator
    options: ParallelOptions
    epochs: int
    _distributed: bool = field(default=False, init=False)

    @property
    def rank(self) -> int:
        """The number of this rank; the main one has 0."""
        return self.communicator.rank

    @property
    def count(self) -> int:
        """How many there are."""
        return self.communicator.size

    @property
    def is_main(self) -> bool:
        """Whether this rank writes the files."""
        return self.rank == 0

    def trains_together(self, epoch: int) -> bool:
        """Whether the ranks share the work of an epoch; otherwise each does all of it."""
        return self.options.method != NONE and epoch >= self.options.first_epoch

    def sums_gradients(self, epoch: int) -> bool:
        """Whether the gradients of each minibatch are summed."""
        return self.trains_together(epoch) and self.options.method == GRADIENTS

    def averages(self, epoch: int) -> bool:
        """Whether the parameters are averaged after each block."""
        return self.trains_together(epoch) and self.options.method in (AVERAGING, BLOCKS)

    def is_asynchronous(self, epoch: int) -> bool:
        """Whether ranks add their changes to shared parameters, each in its own time."""
        return self.trains_together(epoch) and self.options.method == ASYNCHRONOUS

    def keeps_own_states(self, epoch: int) -> bool:
        """Whether the learner of each rank has states of its own at the end of an epoch."""
        options = self.options
        return self.is_asynchronous(epoch) or (
            self.averages(epoch) and (options.method == AVERAGING or not options.reset_momentum)
        )

    def seed_number(self, epoch: int) -> int:
        """The number that seeds of dropout follow from: other ones on each rank, once they train
        together; until then the ranks stay equal."""
        return (self.rank * self.epochs if self.trains_together(epoch) else 0) + epoch

    def describe(self, epoch: int, divided: bool) -> str:
        """What the log says at the start of an epoch."""
        text = ""
        if self.sums_gradients(epoch):
            text = (
                f", DataParallelSGD training (myRank = {self.rank}, numNodes = {self.count}, "
                f"numGradientBits = {self.options.bits[epoch]})"
            )
            if self.options.buffered:
                text += ", BufferedAsyncGradientAggregation is ENABLED"
        if self.is_asynchronous(epoch):
            text = (
                f", DataParallelASGD training (myRank = {self.rank}, numNodes = {self.count}, "
                f"SamplesSyncToServer = {self.options.period[epoch]})"
            )
        return text + (", distributed reading is ENABLED" if divided else "")

    # -- data ------------------------------------------------------------------------------------

    def divide(self, reader: DataReader, together: bool) -> bool:
        """Let a reader give this rank its part, or everything; before each epoch.

        Returns:
            Whether it gives this rank's part: if not, and it was to, `part` cuts its minibatches.
        """
        wanted = self.options.distributed
        wanted = together and (not reader.legacy if wanted is None else wanted)
        divided = wanted and reader.take_share(self.rank, self.count)
        if not divided:
            reader.take_share(0, 1)
        return divided

    # -- exchanges -------------------------------------------------------------------------------

    def add_up(
        self, reading: bool, samples: int, columns: int, values: Sequence[tuple[float, int]]
    ) -> Sums:
        """The sums over all ranks, in double precision as CNTK's header of gradients."""
        flat = [float(reading), float(samples), float(columns)]
        flat += [number for value in values for number in value]
        array = np.array(flat)
        self.communicator.operator = "the sums of a minibatch"
        self.communicator.all_reduce(array)
        numbers = array.tolist()
        pairs = zip(numbers[3::2], numbers[4::2], strict=True)
        return Sums(
            int(numbers[0]),
            int(numbers[1]),
            int(numbers[2]),
            [(value, int(n)) for value, n in pairs],
        )

    def any_ended(self, ended: bool) -> bool:
        """Whether a rank that comes to this point has come to the end of its data."""
        array = np.array([float(ended)])
        self.communicator.operator = "the end of a block"
        self.communicator.all_reduce(array)
        return bool(array[0])

    def barrier(self) -> None:
        """Wait for all ranks: those that read a file for the one that writes it."""
        self.communicator.operator = "waiting for all ranks"
        self.communicator.barrier()
