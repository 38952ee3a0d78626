"""Writing files so that a reader sees the old contents or the new, and never a part of either."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO

from ..errors import FormatError, OutsideError, SaveError
from ..untrusted.opener import file_path, open_output, real_path
from ..untrusted.roots import current
from .leftovers import hold, temporary_name

PathLike = str | os.PathLike[str]
Writer = Callable[[BinaryIO], object]
# Windows alone has the flag; without it every newline byte that is written would become two.
_BINARY = getattr(os, "O_BINARY", 0)


@contextlib.contextmanager
def atomic_file(path: PathLike, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends without an error.

    It is written under another name in the same folder, flushed to the disk, then renamed. A
    device or a pipe is written to as it is.

    Args:
        path: the file; where it is there already it keeps its permissions.
        mode: permissions of a new file, before the process's mask.

    Raises:
        SaveError: the folder is missing or not writable, or the disk is full; `path` is named, and
            what was there before is untouched.
    """
    path = _real(path)
    temporary = None
    with _naming(path):
        special = _is_special(path)
    if special:
        with _naming(path), open_output(path) as file:
            yield file
        return
    try:
        with _naming(path):
            temporary, file = _open_beside(path, mode)
            with file:
                yield file
                _flush(file)
                _take_place(file, temporary, path)
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
        if _is_special(path):
            return
        temporary, file = _open_beside(path)
        file.close()
        _remove(temporary)


def refuse_sources(target: PathLike, read: Iterable[PathLike]) -> None:
    """Refuse to write over a file that was read, also where a link leads to it.

    Args:
        target: to be written. read: paths; those that are not there are passed over.

    Raises:
        SaveError: target is one of them.
    """
    for source in read:
        with contextlib.suppress(OSError, ValueError):  # one of both is missing, or no name
            # Comparing the names would miss links and different spellings of one path.
            if os.path.samefile(target, source):
                raise SaveError(
                    f"cannot write {os.fspath(target)}: it is read here; nothing is overwritten"
                )


def refuse_existing(target: PathLike) -> None:
    """Refuse to write over a file, or into a folder that holds something.

    Raises:
        SaveError: target is there.
    """
    name = os.fspath(target)
    if os.path.isfile(name) or (os.path.isdir(name) and os.listdir(name)):
        raise SaveError(
            f"{name} is there already: overwrite=True, or --overwrite, replaces it; nothing is"
            " written"
        )


def mark_of(path: PathLike) -> tuple[int, int, int, int] | None:
    """What tells a file from one that takes its place; None: there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    # Time and size go with the inode: a file that is removed and written anew may get the same
    # number.
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def check_same(path: PathLike, mark: tuple[int, int, int, int] | None) -> None:
    """Refuse to replace what another program has written meanwhile.

    Args:
        mark: of the file as the caller has written or found it; None: there was none.

    Raises:
        SaveError: there is another one.
    """
    if mark_of(path) not in (mark, None):
        raise SaveError(
            f"{os.fspath(path)}: another program has written it since this one did or began: two"
            " trainings cannot write the same files; the other one's is there"
        )


def make_folder_of(path: PathLike) -> None:
    """Make the folder that `path` lies in, and those around it, where they are missing.

    Raises:
        SaveError: a folder cannot be made.
    """
    with _naming(os.fspath(path)):
        os.makedirs(os.path.dirname(_real(path)), exist_ok=True)


def write_atomically(path: PathLike, data: bytes) -> None:
    """The whole of `data` as the contents of `path`; see `atomic_file`."""
    with atomic_file(path) as file:
        file.write(data)


def write_together(targets: Sequence[tuple[PathLike, Writer]]) -> None:
    """Write several files that belong together: on an error, none of them has changed.

    All are written and flushed under other names first; then each is renamed, first to last. A
    machine that goes down between two renames leaves new files beside old ones: where a reader must
    not see that, see `write_pair`.

    Raises:
        SaveError: see `atomic_file`.
    """
    begin_together(targets)()


def begin_together(targets: Sequence[tuple[PathLike, Writer]]) -> Callable[[], None]:
    """As `write_together`, up to where a disk is waited for: the files have other names still.

    What is returned flushes them and renames them. It must be called once, in any thread, and
    raises what `write_together` raises.

    Raises:
        SaveError: see `atomic_file`.
    """
    waiting: list[tuple[str, BinaryIO, str]] = []
    with contextlib.ExitStack() as stack:
        for target, write in targets:
            path = _real(target)
            with _naming(path):
                if _is_special(path):
                    with open_output(path) as file:
                        write(file)
                    continue
                temporary, file = _open_beside(path)
                stack.callback(_remove, temporary)
                stack.enter_context(file)
                waiting.append((temporary, file, path))
                write(file)
                file.flush()
        held = stack.pop_all()

    def finish() -> None:
        backups: list[tuple[str, str | None]] = []
        with held:
            # Everything that can fail for want of room is done before the first rename.
            for _, file, path in waiting:
                with _naming(path):
                    _flush(file)
            try:
                for temporary, file, path in waiting:
                    with _naming(path):
                        # Recorded before the rename, so that a rename that fails is undone with
                        # the others.
                        backups.append((path, _keep_beside(path, held)))
                        _take_place(file, temporary, path)
            except SaveError:
                _restore(backups)
                raise
            for path in {os.path.dirname(path): path for _, _, path in waiting}.values():
                _flush_folder(path)

    return finish


def write_pair(
    data: tuple[PathLike, Writer], head: tuple[PathLike, Writer], waiting: PathLike
) -> None:
    """Write a file and another that says which contents of the first it wants.

    `data` is written under the name `waiting` first, then `head` takes its place, then `data` its
    own. A reader that finds other data than `head` wants looks under `waiting`, which must be
    another name for other contents: so there is a whole pair at any moment, the old one or the new.

    Raises:
        SaveError: see `atomic_file`; the old pair is untouched.
    """
    path = _real(data[0])
    held = _real(waiting)
    with _naming(path):
        if _is_special(path):
            raise SaveError(f"cannot write {path}: it is no plain file")
        temporary, file = _open_beside(path)
        try:
            with file:
                data[1](file)
                _flush(file)
                _take_place(file, temporary, held)
            # The data have left their first name; an error from here on must remove the second one.
            temporary = held
            with atomic_file(head[0]) as other:
                head[1](other)
        except BaseException:
            _remove(temporary)
            raise
        os.replace(held, path)
    _flush_folder(path)


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


def _real(path: PathLike) -> str:
    """The file that is written: what a link points to is replaced, not the link."""
    try:
        return real_path(file_path(path))
    except OutsideError:
        raise
    except FormatError as error:
        raise SaveError(f"cannot write: {error}") from None


def _is_special(path: str) -> bool:
    """Whether `path` is a device, a pipe or the like, which no file must replace.

    Raises:
        SaveError: it is a folder. OSError: its name is no good.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise SaveError(f"cannot write {path}: it is a folder")
    return not stat.S_ISREG(mode)


def _open_beside(path: str, mode: int = 0o666) -> tuple[str, BinaryIO]:
    """A new file in the folder of `path`, with its permissions where it is there already.

    It must be open until it has taken its place: then it is no leftover.
    """
    # Another process may take the file for a leftover between its creation and its lock: then begin
    # again with another name.
    while True:
        temporary = temporary_name(path)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode)
        if hold(handle, temporary):
            break
        os.close(handle)
    confinement = current()
    if confinement is not None:
        try:
            # The path was checked before; its folder may have become a link to elsewhere in the
            # meantime.
            confinement.check_beside(temporary, path, handle)
        except BaseException:
            os.close(handle)
            _remove(temporary)
            raise
    with contextlib.suppress(OSError):
        # Some file systems know no permissions; then there are none to keep.
        os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
    return temporary, os.fdopen(handle, "wb")


def _take_place(file: BinaryIO, temporary: str, path: str) -> None:
    if os.name == "nt":  # an open file cannot be renamed there
        file.close()
    os.replace(temporary, path)


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


def _keep_beside(path: str, stack: contextlib.ExitStack) -> str | None:
    """A second name for the present contents of `path`; None where there is nothing to keep."""
    if not os.path.exists(path):
        return None
    while True:
        # A link costs nothing and survives the rename, which replaces the name and not the
        # contents.
        backup = temporary_name(path)
        try:
            os.link(path, backup)
        except OSError:  # not every file system knows links
            import shutil  # slow to load

            shutil.copy2(path, backup)
        stack.callback(_remove, backup)
        with contextlib.suppress(FileNotFoundError):
            if hold(stack.enter_context(open(backup, "rb")).fileno(), backup):
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
