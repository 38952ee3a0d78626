"""Writing files so that a reader sees the old contents or the new, and never a part of either."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from .errors import SaveError

PathLike = str | os.PathLike[str]
Writer = Callable[[BinaryIO], object]
_BINARY = getattr(os, "O_BINARY", 0)
_TEMPORARY = re.compile(r"(.+)\.[0-9a-f]{12}\.tmp")  # see `_name_beside`


@contextlib.contextmanager
def atomic_file(path: PathLike) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends without an error.

    It is written under another name in the same folder, flushed to the disk, then renamed.

    Raises:
        SaveError: the folder is missing or not writable, or the disk is full; `path` is named, and
            what was there before is untouched.
    """
    path = _real(path)
    temporary = None
    try:
        with _naming(path):
            _check_target(path)
            temporary, file = _open_beside(path)
            with file:
                yield file
                _flush(file)
            os.replace(temporary, path)
            temporary = None
            _flush_folder(path)
    finally:
        if temporary is not None:
            _remove(temporary)


def check_writable(path: PathLike) -> None:
    """Find out before long work whether `path` could be written at its end.

    Raises:
        SaveError: its folder is missing or not writable, or it is a folder itself.
    """
    path = _real(path)
    with _naming(path):
        _check_target(path)
        temporary, file = _open_beside(path)
        file.close()
        _remove(temporary)


def make_folder_of(path: PathLike) -> None:
    """Make the folder that `path` lies in, and those around it, where they are missing.

    Raises:
        SaveError: a folder cannot be made.
    """
    with _naming(os.fspath(path)):
        os.makedirs(os.path.dirname(_real(path)), exist_ok=True)


def remove_leftovers(*paths: PathLike) -> None:
    """Remove what programs that were killed while they wrote `paths` have left beside them.

    Nobody else may be writing them meanwhile.
    """
    begins: dict[str, set[str]] = {}
    for path in paths:
        folder, name = os.path.split(_real(path))
        begins.setdefault(folder, set()).add(f".{name[:64]}")
    for folder, names in begins.items():
        with contextlib.suppress(OSError):
            for other in os.listdir(folder):
                match = _TEMPORARY.fullmatch(other)
                if match and match[1] in names:
                    os.unlink(os.path.join(folder, other))


def write_atomically(path: PathLike, data: bytes) -> None:
    """The whole of `data` as the contents of `path`; see `atomic_file`."""
    with atomic_file(path) as file:
        file.write(data)


def write_together(targets: Sequence[tuple[PathLike, Writer]]) -> None:
    """Write several files that belong together: on an error, none of them has changed.

    All are written and flushed under other names first; then each is renamed, first to last. A
    machine that goes down between two renames leaves new files beside old ones, so readers must be
    able to tell: let the files carry a common mark.

    Raises:
        SaveError: see `atomic_file`.
    """
    temporaries: list[tuple[str, str]] = []
    backups: list[tuple[str, str | None]] = []
    try:
        for target, write in targets:
            path = _real(target)
            with _naming(path):
                _check_target(path)
                temporary, file = _open_beside(path)
                temporaries.append((temporary, path))
                with file:
                    write(file)
                    _flush(file)
        try:
            for temporary, path in temporaries:
                with _naming(path):
                    backups.append((path, _keep_beside(path)))
                    os.replace(temporary, path)
        except SaveError:
            _restore(backups)
            raise
        _flush_folder(temporaries[-1][1])
    finally:
        for leftover in (*(t for t, _ in temporaries), *(b for _, b in backups if b)):
            _remove(leftover)


def _real(path: PathLike) -> str:
    """The file that is written: what a link points to is replaced, not the link."""
    if "\0" in os.fspath(path):
        raise SaveError(f"cannot write {os.fspath(path)!r}: a path holds no NUL character")
    return os.path.realpath(path)


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Turns the operating system's errors into a SaveError that names `path`."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        folder = os.path.dirname(path) or "."
        if isinstance(error, FileNotFoundError) and not os.path.isdir(folder):
            why = f"there is no folder {folder}"
        raise SaveError(f"cannot write {path}: {why}") from error


def _check_target(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # other errors tell that the name is no good
        if stat.S_ISDIR(os.stat(path).st_mode):
            raise SaveError(f"cannot write {path}: it is a folder")


def _open_beside(path: str) -> tuple[str, BinaryIO]:
    """A new file in the folder of `path`, with its permissions where it is there already."""
    temporary = _name_beside(path)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
    with contextlib.suppress(OSError):
        os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
    return temporary, os.fdopen(handle, "wb")


def _name_beside(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name[:64]}.{secrets.token_hex(6)}.tmp")


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _flush_folder(path: str) -> None:
    """Make the rename last; some systems cannot open folders, and there it lasts anyway."""
    with contextlib.suppress(OSError):
        handle = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _keep_beside(path: str) -> str | None:
    """A second name for the present contents of `path`; None where there is nothing to keep."""
    if not os.path.exists(path):
        return None
    backup = _name_beside(path)
    try:
        os.link(path, backup)
    except OSError:  # not every file system knows links
        shutil.copy2(path, backup)
    return backup


def _restore(backups: Sequence[tuple[str, str | None]]) -> None:
    for path, backup in backups:
        with contextlib.suppress(OSError):
            if backup is None:
                os.remove(path)
            elif os.path.exists(backup):
                os.replace(backup, path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.remove(path)
