"""What every writer can do, and writers by name.

A writer from elsewhere plugs in by an entry point of the group `opscope.writers`, whose name is the
`writerType` of configs. Source: CNTK's `IDataWriter` (`Common/Include/DataWriter.h`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeAlias

from ....framework.base.errors import nearest
from ...config.parameters import ConfigParameters
from .data import Samples
from .sections import check_not_read

Factory: TypeAlias = Callable[[ConfigParameters], "DataWriter"]

GROUP = "opscope.writers"

_OWN = {  # writer type: module of this package and the function that makes the writer of a config
    "BinaryWriter": ("binary.writer", "binary_writer"),
    "HTKMLFWriter": ("htk.writer", "htk_mlf_writer"),
    "LMSequenceWriter": ("language.lu_writer", "lm_sequence_writer"),
    "LUSequenceWriter": ("language.lu_writer", "lu_sequence_writer"),
}
_ALIASES = {  # CNTK takes the names of readers, too
    name.replace("Writer", "Reader").lower(): name for name in _OWN
}


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
        """Finish what was begun."""

    def discard(self) -> None:
        """Give up what was begun; called in place of `close` where something went wrong."""
        self.close()

    def __enter__(self) -> DataWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def writer_types() -> list[str]:
    """Names of all writers, plugged-in ones included."""
    return sorted({*_OWN, *(point.name for point in entry_points(group=GROUP))})


def create_writer(config: ConfigParameters, reader: ConfigParameters | None = None) -> DataWriter:
    """The writer that a writer section asks for.

    Args:
        config: the section.
        reader: the section of the reader that is used at the same time.

    Raises:
        FormatError: there is no such writer; and what the writer itself does not like.
        SaveError: it would write a file that the reader reads.
    """
    writer = _create(config)
    if reader is not None:
        check_not_read(reader, writer.files)
    return writer


def _create(config: ConfigParameters) -> DataWriter:
    value = config.find("writerType", "BinaryWriter")
    assert value is not None
    name = _ALIASES.get(str(value).lower(), str(value))
    for known, (module, function) in _OWN.items():
        if known.lower() == name.lower():
            made: Factory = getattr(import_module(f"..{module}", __package__), function)
            return made(config)
    for point in entry_points(group=GROUP):
        if point.name.lower() == name.lower():
            return point.load()(config)
    hint = nearest(name, writer_types())
    raise value.error(f"there is no writer type {name!r}{hint}")
