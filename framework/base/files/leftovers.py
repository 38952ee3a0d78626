"""Temporary files that killed programs have left, distinguished from those that are being written.

Who writes a temporary file holds a lock on it. The system takes the lock away when the process
ends, however it ends, so a file that can be locked has no owner.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

from ..machine.system import fcntl

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp", re.DOTALL)
_BEGINNING = 64  # characters of the name that a temporary file stands for
_OFTEN = 10.0  # seconds; a folder of many files is not searched again for each of them
_searched: dict[str, float] = {}


def temporary_name(path: str) -> str:
    """A name that no file has, beside `path`; what killed programs left there is removed."""
    folder, name = os.path.split(path)
    _clean(folder or ".")
    return os.path.join(folder, f".{name[:_BEGINNING]}.{os.urandom(6).hex()}.tmp")


def hold(handle: int, path: str) -> bool:
    """Lock a temporary file; False where another process has just taken it for a leftover."""
    if fcntl is None:  # on Windows a file that is open cannot be removed: that is the lock
        return True
    try:
        # Shared, as backups are links: two programs that save over one file hold the same contents.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # The lock may have been taken just after a cleaner removed the name: then it locks no file
        # that anyone can see.
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # a file system without locks: there nothing can be locked, nothing is removed
        return True


def _clean(folder: str) -> None:
    now = time.monotonic()
    if now - _searched.get(folder, -_OFTEN) < _OFTEN:
        return
    _searched[folder] = now
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(folder) if _TEMPORARY.fullmatch(name)]
        for name in names:
            _remove_if_left(os.path.join(folder, name))


def _remove_if_left(path: str) -> None:
    with contextlib.suppress(OSError):
        if fcntl is None:
            os.unlink(path)
            return
        # Someone may have put a link or a pipe under such a name: neither is followed or waited
        # for.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            # Fails, and so leaves the file, while its writer lives.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(handle)
