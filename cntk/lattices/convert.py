"""Lattices of several files, to be put into one archive.

Source: CNTK's `HTKMLFReader/latticearchive.cpp` (build, convert).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath

from ...framework.base.errors import FormatError
from .archive import CONTENTS, LatticeArchive
from .hmms import Hmms
from .htk_text import read_htk_lattice
from .lattice import Lattice


def lattices_in(
    files: Iterable[str], hmms: Hmms, failed: Callable[[FormatError], None]
) -> Iterator[tuple[str, Lattice]]:
    """The lattices of files, with the names of their utterances.

    Args:
        files: tables of archives (`.toc`), of which all lattices are taken; other files are in
            HTK's text format and named by their utterance, or given as `name=path`.
        hmms: the phones.
        failed: called with each lattice that cannot be read, which is left out.

    Raises:
        FormatError: a table cannot be read.
    """
    for file in files:
        if file.endswith(CONTENTS):
            archive = LatticeArchive([file], hmms)
            for name in archive.names:
                yield from _tried(name, lambda name=name, source=archive: source.read(name), failed)
            archive.close()
            continue
        name, equals, path = file.partition("=")
        path = path if equals else file
        yield from _tried(
            PurePath(name).stem, lambda path=path: read_htk_lattice(path, hmms), failed
        )


def _tried(
    name: str, read: Callable[[], Lattice], failed: Callable[[FormatError], None]
) -> Iterator[tuple[str, Lattice]]:
    try:
        lattice = read()
    except FormatError as error:
        failed(error)
        return
    yield name, lattice
