"""Computations kept on disk for the next process, by their content.

They lie beside the compiled loops, in a folder where no other user can write (see `library_files`).
The name of a file is a digest of all that a computation depends on: the structure of the network,
the requests, the passes, and the code that compiles. A file that is damaged, or not ours, is as
good as none: the computation is compiled and written again. `OPSCOPE_KEEP_COMPUTATIONS=0` leaves
the disk alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from ... import __version__
from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.files.atomic import atomic_file
from ...framework.base.machine.system import thread_time
from ...framework.base.options.settings import read_options, switch
from ...framework.fusion.compiled import library_files
from ..compiler.computation import Computation
from ..compiler.verbose import VERBOSE
from ..graph.request import ComputationRequest
from ..graph.topology import Topology
from .encoded import decode, encode

_log = logging.getLogger(__name__)

_HEAD: Final = b"opscope computation 1\n"
_SUFFIX: Final = ".computation"
_DIGEST: Final = 64  # characters
MOST_FILES: Final = 1000
MOST_SIZE: Final = 1 << 26
"""Bytes of all files; of too many, the half used longest ago is removed."""
WORTH: Final = 4e-3
"""Seconds of compiling from which on a computation is kept."""
_COMPILES: Final = ("index", "language", "components", "graph", "compiler", "optimize", "inference")


def kept(
    structure: Callable[[], str],
    requests: Iterable[ComputationRequest],
    settings: str,
    topology: Topology,
    compiled: Callable[[], Computation],
) -> Computation:
    """A computation: the one on disk, or a new one, which is then kept.

    Args:
        structure: the digest of the network, see `structure.py`; asked for where it is needed.
        settings: everything else that the computation depends on: passes, shortcut.
        topology: of the network.

    Raises:
        As `compiled`.
    """
    folder = _folder()
    if folder is None:
        return compiled()
    key = _key(structure(), requests, settings)
    path = folder / f"{key}{_SUFFIX}"
    cached = _find(path, topology)
    if cached is not None:
        return cached
    begin = thread_time()
    computation = compiled()
    if thread_time() - begin >= WORTH:
        _keep(path, computation)
    return computation


def _folder() -> Path | None:
    """Where to look; None where nothing may be left out: checks, and reports of compilation."""
    if switch("OPSCOPE_KEEP_COMPUTATIONS") != "1" or read_options().verify:
        return None
    return library_files.cache_folder() if VERBOSE.get() is None else None


def _key(structure: str, requests: Iterable[ComputationRequest], settings: str) -> str:
    digest = hashlib.sha256()
    for text in (__version__, _code(), structure, settings):
        digest.update(text.encode() + b"\n")
    for request in requests:
        digest.update(repr(request.key()).encode() + b"\n")
    return digest.hexdigest()


@functools.cache
def _code() -> str:
    """Sizes and times of the modules that compile: while these are worked on, the version stays."""
    marks: list[tuple[str, int, int]] = []
    rooms = [Path(__file__).parents[1] / room for room in _COMPILES]
    for folder in (*rooms, Path(__file__).parents[1] / "components" / "base"):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    state = entry.stat()
                    marks.append((entry.path, state.st_size, state.st_mtime_ns))
    return repr(sorted(marks))


def _find(path: Path, topology: Topology) -> Computation | None:
    try:
        data = library_files.read_own(path)
        body = data[len(_HEAD) + _DIGEST :]
        if data[: len(data) - len(body)] != _head(path, body):
            raise FormatError(f"{path}: the checksum is wrong")
        computation = decode(body, topology, str(path))
        os.utime(path)  # in use
    except (OSError, OpscopeError) as error:
        if not isinstance(error, FileNotFoundError):
            _log.debug("a kept computation is not used: %s", error)
        return None
    return computation


def _head(path: Path, body: bytes) -> bytes:
    """What stands before the body of a file of that name."""
    return _HEAD + hashlib.sha256(path.name.encode() + body).hexdigest().encode()


def _keep(path: Path, computation: Computation) -> None:
    try:
        body = encode(computation)
        _prune(path.parent)
        path.unlink(missing_ok=True)  # a link would be followed, wrong permissions kept
        with atomic_file(path, mode=0o600) as file:
            file.write(_head(path, body) + body)
    except (OSError, OpscopeError) as error:
        _log.debug("a computation is not kept: %s", error)


def _prune(folder: Path) -> None:
    """Make room: of too many files, or too large ones, the half used longest ago goes."""
    listed: list[tuple[float, int, str]] = []
    with contextlib.suppress(OSError):  # another process may prune as well
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIX):
                    state = entry.stat(follow_symlinks=False)
                    listed.append((state.st_mtime, state.st_size, entry.path))
        size = sum([size for _, size, _ in listed])
        if len(listed) < MOST_FILES and size < MOST_SIZE:
            return
        for _, _, name in sorted(listed)[: -(-len(listed) // 2)]:
            os.unlink(name)
