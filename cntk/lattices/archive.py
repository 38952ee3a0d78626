"""Archives of lattices, found by tables of contents.

    george-0-00=train.lats[0]        a line of a table (`denLatTocFile`): name, archive, byte
    george-0-01=[1216]               the archive of the line before

Beside an archive lies its list of symbols, `train.lats.symlist`: a phone a line, numbered by
lines, then lines `phone other` for phones that count as another one. Source: CNTK's
`Common/Include/latticearchive.h` (archive).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from glob import glob
from typing import BinaryIO

import numpy as np

from ...framework.base.errors import FormatError, nearest
from ...framework.base.files.atomic import PathLike
from ...framework.base.untrusted.opener import open_file
from ...framework.base.untrusted.roots import current
from ...framework.base.untrusted.values import shown
from ..base.text import read_text
from .archive_format import read_lattice
from .hmms import PAUSE, Hmms
from .lattice import Lattice

SYMBOLS = ".symlist"
CONTENTS = ".toc"
_PLACE = re.compile(r"\[(\d{1,15})\]")


def find_tables(pattern: str) -> list[str]:
    """The tables that match a pattern (with `*`, `?`, `~`), sorted.

    Raises:
        FormatError: there is none.
    """
    paths = sorted(glob(os.path.expanduser(pattern)))
    if not paths:
        raise FormatError(f"{pattern}: there is no such table of lattices")
    return paths


class LatticeArchive:
    """Lattices by the names of utterances.

    Args:
        tables: the tables of contents.
        hmms: the phones that the symbols of archives are among.
        prefix: folder that is put before the paths of archives.

    Attributes:
        names: of the utterances, in the order of the tables.

    Raises:
        FormatError: the file is wrong; the message names file and line.
    """

    def __init__(self, tables: Sequence[PathLike], hmms: Hmms, prefix: str = "") -> None:
        self.hmms = hmms
        self._places: dict[str, tuple[str, int]] = {}
        confinement = current()
        for table in tables:
            for place, name, path, offset in _entries(table):
                if name in self._places:
                    raise FormatError(f"{place}the lattice {name!r} is there already")
                path = f"{prefix}/{path}" if prefix else path
                if confinement is not None:
                    confinement.check(path, place.removesuffix(": "))
                self._places[name] = path, offset
        self._open: tuple[str, BinaryIO] | None = None
        self._numbers: dict[str, np.ndarray] = {}
        self._last_list: tuple[str, np.ndarray] | None = None

    @property
    def names(self) -> list[str]:
        return list(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __len__(self) -> int:
        return len(self._places)

    def read(self, name: str) -> Lattice:
        """The lattice of an utterance.

        Raises:
            FormatError: there is none, a file is missing, or the bytes are no lattice.
        """
        if name not in self._places:
            hint = nearest(name, self._places)
            raise FormatError(f"there is no lattice {name!r}{hint}")
        path, offset = self._places[name]
        numbers = self._symbols(path)
        try:
            if self._open is None or self._open[0] != path:
                self.close()
                self._open = path, open_file(path)
            file = self._open[1]
            return read_lattice(file, path, offset, numbers, self.hmms.numbers.get(PAUSE))
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the archive that was read last."""
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _symbols(self, archive: str) -> np.ndarray:
        """The phone of each symbol of an archive. Archives of one run have the same list."""
        if archive not in self._numbers:
            path = archive + SYMBOLS
            text = read_text(path)
            if self._last_list is None or self._last_list[0] != text:
                self._last_list = text, _numbers(path, text, self.hmms)
            self._numbers[archive] = self._last_list[1]
        return self._numbers[archive]


def _entries(table: PathLike) -> Iterator[tuple[str, str, str, int]]:
    """Place, name, archive and byte of each line of a table."""
    archive = ""
    for number, line in enumerate(read_text(table).splitlines(), 1):
        if not line.strip():
            continue
        place = f"{table}:{number}: "
        name, equals, rest = line.partition("=")
        path, bracket, _ = rest.partition("[")
        match = _PLACE.fullmatch(rest[len(path) :].rstrip())
        if not equals or not bracket or match is None:
            raise FormatError(
                f"{place}'name=archive[byte]' was expected, but this is {shown(line)}"
            )
        archive = path or archive
        if not archive:
            raise FormatError(f"{place}the first line of a table names an archive")
        yield place, name, archive, int(match[1])


def _numbers(path: str, text: str, hmms: Hmms) -> np.ndarray:
    numbers: list[int] = []
    linked = False
    for line, name in enumerate(text.splitlines(), 1):
        symbol, space, other = name.strip().partition(" ")
        if not symbol:
            continue
        for wanted in (symbol, other.strip()) if space else (symbol,):
            if wanted not in hmms.numbers:
                hint = nearest(wanted, hmms.numbers) if len(hmms.numbers) < 1000 else ""
                raise FormatError(f"{path}:{line}: there is no phone {wanted!r}{hint}")
        if not space:
            if linked:
                raise FormatError(
                    f"{path}:{line}: a phone after the lines of phones that stand for others"
                )
            numbers.append(hmms.numbers[symbol])
        elif hmms.numbers[symbol] != hmms.numbers[other.strip()]:
            raise FormatError(f"{path}:{line}: {symbol!r} and {other.strip()!r} are not the same")
        linked = linked or bool(space)
    return np.array(numbers, np.int64)
