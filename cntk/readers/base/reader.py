"""The interface of readers. Source: CNTK's `IDataReader` (`Common/Include/DataReader.h`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import numpy as np

from ....framework.base.errors import RunError
from ....framework.base.options.plugins import call_plugin, owner_of
from .data import Samples, Stream
from .layout import Layout
from .pack import Minibatch


class DataReader(ABC):
    """A source of minibatches.

    Attributes:
        streams: of each minibatch.
        last: the last minibatch of those that `minibatches` has given.
        legacy: whether it is one of CNTK's older readers: then several ranks cut its minibatches
            where `distributedMBReading` says nothing, and do not let it read their shares.
    """

    streams: list[Stream]
    last: Minibatch = Minibatch()
    legacy: bool = False

    @property
    def parallel(self) -> int:
        """Sequences side by side, for readers that have a fixed number of them (CNTK's
        `GetNumParallelSequencesForFixingBPTTMode`); 1 for others."""
        return 1

    @abstractmethod
    def start_minibatch_loop(self, size: int, epoch: int, epoch_size: int | None = None) -> None:
        """Begin an epoch.

        Args:
            size: of a minibatch, in samples (of all parallel sequences together).
            epoch: counted from 0.
            epoch_size: in samples; None: one sweep over the data.
        """

    def take_share(self, rank: int, ranks: int) -> bool:
        """From the next epoch on read only what one of several ranks is to see; (0, 1): all.

        Every rank then gives as many samples as its part of a minibatch has, which may be none: an
        empty `Minibatch` that is not the end of the epoch.

        Returns:
            Whether the reader can; if not, it gives the same to all ranks, who cut it themselves.
        """
        return ranks == 1

    def use_network(self, output: Callable[[Minibatch], np.ndarray]) -> None:  # noqa: B027
        """Called before each epoch of a training; some readers make streams of what the network
        gives.

        Args:
            output: gives the network's first output for a minibatch, [samples, outputs].
        """

    @abstractmethod
    def get_minibatch(self) -> Minibatch | None:
        """The next minibatch; None at the end of the epoch.

        Raises:
            FormatError: the data are not as they should be.
        """

    def data_end(self) -> bool:
        """Whether all sequences of the last minibatch ended with it (CNTK's `endDataSentence`)."""
        return all(
            bool((layout.end <= layout.steps).all()) for layout in self.last.layouts.values()
        )

    def _layout(self) -> Layout | None:
        """The layout with the most columns of the last minibatch."""
        return max(self.last.layouts.values(), key=lambda layout: layout.columns, default=None)

    @property
    def parallel_sequences(self) -> int:
        """Slots of the last minibatch; 1 before the first one."""
        layout = self._layout()
        return 1 if layout is None else layout.parallel

    def sentence_ends(self) -> np.ndarray:
        """Whether the sequence of each slot ended within the last minibatch, bool, [slots]."""
        layout = self._layout()
        if layout is None:
            return np.ones(1, bool)
        ended = np.ones(layout.parallel, bool)
        ended[layout.slot[layout.end > layout.steps]] = False
        return ended

    def label_mapping(self, stream: str) -> Mapping[int, str]:
        """The labels of a stream by their numbers; empty where they have no names."""
        return {}

    def set_label_mapping(self, stream: str, mapping: Mapping[int, str]) -> None:
        """Give the labels of a stream other names; their numbers stay.

        Raises:
            RunError: the reader has no labels with names in this stream.
        """
        raise RunError(f"the labels of {stream!r} have no names")

    def get_data(self, stream: str, first: int, count: int) -> Samples:
        """Sequences of a stream by their numbers, in the order of the files.

        Raises:
            RunError: there is no such stream, there are fewer sequences, or the reader cannot give
                sequences by number.
        """
        raise RunError(f"this reader cannot give sequences of {stream!r} by number")

    def close(self) -> None:  # noqa: B027  many readers have nothing to let go of
        """Let go of files and threads."""

    def __enter__(self) -> DataReader:
        return self

    def __exit__(self, *error: object) -> None:
        call_plugin(owner_of("reader", self), self.close)
