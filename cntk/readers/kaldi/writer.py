"""Kaldi2Writer: values of nodes as matrices in a table of Kaldi.

    writer = [ writerType = "Kaldi2Reader" ; outputNodeNames = "scaled"
        scaled = [ dim = 1920 ; scpFile = "feats.len" ; Kaldicmd = "ark:loglikes.ark" ] ]

The first word of each line of `scpFile` is the key of an utterance; without `Kaldicmd` it is the
path of an archive, whose one key is the name of that file. Source: CNTK's
`Kaldi2Reader/HTKMLFWriter.cpp`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from ....framework.base.errors import SaveError
from ....framework.base.files.atomic import make_folder_of
from ....framework.base.untrusted.roots import current
from ....kaldi.tables.specifiers import WriteSpecifier
from ....kaldi.tables.tables import TableWriter
from ...base.text import read_text
from ...config.parameters import ConfigParameters
from ..base.writer import DataWriter, UtteranceWriter
from ..htk.writer import output_sections
from ..opening import Opening

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Overflow:
    """What becomes of numbers that are too large: log(n), n being the frames of an utterance in a
    table, and the numbers of a frame in archives of single utterances.

    Attributes:
        limit: larger numbers are replaced. warnings: how many of these are shown.
    """

    limit: float
    warnings: int


def kaldi2_writer(config: ConfigParameters) -> Opening[DataWriter]:
    """The writer of a section with writerType Kaldi2Reader.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    sections = output_sections(config)
    specifiers = [part.string("Kaldicmd", "") for part, *_ in sections.values()]
    for (part, *_), specifier in zip(sections.values(), specifiers, strict=True):
        if bool(specifier) != bool(specifiers[0]):
            raise part["Kaldicmd"].error("all nodes have a Kaldicmd, or none has")
        if specifier:
            WriteSpecifier.parse(specifier)
    overflow = Overflow(
        config.float("overflowValue", 50.0), config.int("maxNumOverflowWarning", 10)
    )
    dims = {name: dim for name, (_, _, dim, _) in sections.items()}
    lists = [path for *_, path in sections.values()]

    def opened() -> DataWriter:
        keys = [_first_words(str(path)) for path in lists]
        for path, words in zip(lists, keys, strict=True):
            if len(words) != len(keys[0]):
                raise path.error(f"the list has {len(words)} lines, the first one {len(keys[0])}")
        return KaldiWriter(dims, keys, specifiers if specifiers[0] else None, overflow)

    given = {name: (node, dim) for name, (_, node, dim, _) in sections.items()}
    return Opening(opened, lists, nodes=given)


def _first_words(path: str) -> list[str]:
    return [line.split()[0] for line in read_text(path).splitlines() if line.strip()]


class KaldiWriter(UtteranceWriter):
    """Writes each sequence under the next key of a list.

    Args:
        dims: of each node.
        keys: for each node, one an utterance.
        specifiers: of each node's table; None: a key is the path of an archive of its own.
        overflow: see there.

    Raises:
        SaveError: a table cannot be opened.
    """

    def __init__(
        self,
        dims: Mapping[str, int],
        keys: Sequence[Sequence[str]],
        specifiers: Sequence[str] | None,
        overflow: Overflow,
    ) -> None:
        super().__init__(dims, keys, "has {} lines")
        self._overflow = overflow
        self._shown = 0
        self._stack = ExitStack()
        self._tables: dict[str, TableWriter] | None = None
        if specifiers is None:
            self.files = [key for words in keys for key in words]
            confinement = current()
            for path in self.files if confinement is not None else ():
                assert confinement is not None
                confinement.check(path, "the list of archives")
            return
        parsed = [WriteSpecifier.parse(text) for text in specifiers]
        self.files = [file for one in parsed for file in (one.archive, one.script) if file]
        with ExitStack() as stack:
            writers = [stack.enter_context(TableWriter(one, "matrix")) for one in specifiers]
            self._tables = dict(zip(dims, writers, strict=True))
            self._stack = stack.pop_all()

    def _write(self, name: str, entry: str, rows: np.ndarray) -> None:
        stem = PurePosixPath(entry).stem
        size = rows.shape[1] if self._tables is None else len(rows)
        large = rows > self._overflow.limit
        if large.any():
            if self._shown < self._overflow.warnings:
                self._shown += 1
                _log.warning("%s: %d numbers of %s overflowed", entry, int(large.sum()), name)
            rows = np.where(large, rows.dtype.type(math.log(size)), rows)
        if self._tables is not None:
            self._tables[name].write(stem, rows.astype(np.float32))
            return
        make_folder_of(entry)
        kind = "double_matrix" if rows.dtype == np.float64 else "matrix"
        with TableWriter(f"ark:{entry}", kind) as table:
            table.write(stem, rows)

    def close(self) -> None:
        """See `DataWriter.close`."""
        self._stack.close()

    def discard(self) -> None:
        """See `DataWriter.discard`: what was there stays."""
        error = SaveError("the values were not all written")
        self._stack.__exit__(type(error), error, None)
