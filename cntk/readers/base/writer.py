"""The interface of writers. Source: CNTK's `IDataWriter` (`Common/Include/DataWriter.h`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from ....framework.base.errors import SaveError, ShapeError
from ....framework.base.options.plugins import call_plugin, owner_of
from .data import Samples


class DataWriter(ABC):
    """Takes the values of nodes, minibatch by minibatch.

    Attributes:
        names: of the nodes that it writes.
        files: paths of the files that it writes.
    """

    names: list[str]
    files: Sequence[str] = ()

    @abstractmethod
    def save_data(self, values: Mapping[str, Samples]) -> None:
        """Write a minibatch.

        Args:
            values: of each node, by name: [samples, numbers], sequence after sequence.

        Raises:
            ShapeError: a value has another dimension than the config says.
            SaveError: a file cannot be written.
        """

    def close(self) -> None:  # noqa: B027  many writers have nothing to finish
        """Finish the files."""

    def discard(self) -> None:
        """Give up the files; called in place of `close` after an error."""
        self.close()

    def __enter__(self) -> DataWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        call_plugin(owner_of("writer", self), self.close if kind is None else self.discard)


class UtteranceWriter(DataWriter):
    """Writes each sequence of a node under the next entry of a list.

    Args:
        dims: of each node.
        entries: for each node, one an utterance.
        listed: how an error names the entries: a text with their number.
    """

    def __init__(
        self, dims: Mapping[str, int], entries: Sequence[Sequence[str]], listed: str
    ) -> None:
        self.names = list(dims)
        self._dims = dims
        self._entries = dict(zip(dims, entries, strict=True))
        self._listed = listed
        self._next = 0

    def save_data(self, values: Mapping[str, Samples]) -> None:
        """See `DataWriter.save_data`.

        Raises:
            SaveError: there are more utterances than entries.
        """
        count = 0
        for name in self.names:
            samples = values[name]
            rows = samples.values.reshape(len(samples.values), -1)
            if rows.shape[1] != self._dims[name]:
                raise ShapeError(f"{name} has {rows.shape[1]} numbers; dim is {self._dims[name]}")
            count = len(samples.begin) - 1
            entries = self._entries[name][self._next : self._next + count]
            if len(entries) < count:
                listed = self._listed.format(len(self._entries[name]))
                raise SaveError(f"the list of {name} {listed}; there are more utterances")
            bounds = zip(samples.begin[:-1].tolist(), samples.begin[1:].tolist(), strict=True)
            for entry, (first, last) in zip(entries, bounds, strict=True):
                self._write(name, entry, rows[first:last])
        self._next += count

    @abstractmethod
    def _write(self, name: str, entry: str, rows: np.ndarray) -> None:
        """Write one utterance of a node, [frames, numbers]."""
