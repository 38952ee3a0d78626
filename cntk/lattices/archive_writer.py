"""Writing archives of lattices, with their tables of contents and lists of symbols."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ...framework.base.errors import SaveError
from ...framework.base.files.atomic import PathLike, atomic_file, write_atomically
from .archive import CONTENTS, SYMBOLS
from .archive_format import pack_lattice
from .hmms import PAUSE, Hmms
from .lattice import Lattice


def write_archive(path: PathLike, hmms: Hmms, lattices: Iterable[tuple[str, Lattice]]) -> int:
    """Write `path`, `path.toc` and `path.symlist`; lattices are taken one after the other.

    The table is written last: a reader never finds one that belongs to another archive.

    Args:
        lattices: names of utterances, and the lattice of each.

    Returns:
        How many lattices there were.

    Raises:
        SaveError: a name occurs twice, a lattice does not fit the format, or a file cannot be
            written.
    """
    path = os.fspath(path)
    pause = hmms.numbers.get(PAUSE)
    offset = 0
    places: dict[str, int] = {}
    with atomic_file(path) as file:
        for name, lattice in lattices:
            if name in places or "=" in name or not name:
                why = "occurs twice" if name in places else "cannot be in a table"
                raise SaveError(f"{path}: the name {name!r} {why}")
            try:
                data = pack_lattice(lattice, pause)
            except SaveError as error:
                raise SaveError(f"{path}: {name}: {error}") from None
            file.write(data)
            places[name] = offset
            offset += len(data)
    others = [
        f"{name} {hmms.names[number]}"
        for name, number in hmms.numbers.items()
        if name != hmms.names[number]
    ]
    _write_lines(path + SYMBOLS, [*hmms.names, *others])
    archive = [path] + [""] * len(places)
    lines = [f"{name}={archive[at]}[{byte}]" for at, (name, byte) in enumerate(places.items())]
    _write_lines(path + CONTENTS, lines)
    return len(places)


def _write_lines(path: str, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    write_atomically(path, text.encode("utf-8", "surrogateescape"))
