"""The interface of writers. Source: CNTK's `IDataWriter` (`Common/Include/DataWriter.h`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from ....framework.base.plugins import call_plugin, owner_of
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
