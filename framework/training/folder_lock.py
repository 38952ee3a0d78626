"""The lock that keeps a second run out of a folder."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator

from ..base.errors import SaveError
from ..base.machine.system import fcntl

if sys.platform == "win32":
    import msvcrt

_NAME = "run.lock"
_BYTE = 1 << 20  # the byte that Windows locks, after the text, which stays readable


@contextlib.contextmanager
def folder_lock(folder: str) -> Iterator[None]:
    """Hold a folder for one run. The system takes the lock away when the process ends.

    Raises:
        SaveError: another run holds it, or the file of the lock cannot be written.
    """
    path = os.path.join(folder, _NAME)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise SaveError(f"cannot write {path}: {error.strerror}") from error
    try:
        if not _locked(handle):
            holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
            raise SaveError(f"{folder}: another run is under way there ({holder})")
        with contextlib.suppress(OSError):  # the text only tells who it is
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Take the lock; False where another holds it. Without locks in the file system: True."""
    try:
        if sys.platform == "win32":
            os.lseek(handle, _BYTE, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, 0, os.SEEK_SET)
        elif fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True
