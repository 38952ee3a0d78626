"""Compiled libraries on disk: the folder, who may write there, and whether a file is whole.

What lies in the folder is executed, so it is used only where no one but this user and the system's
owner could have put it there. Beside each library lies the SHA-256 of its bytes: a file that lost
its end, or holds zeros after a power cut, would end the process when its code is reached.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import stat
import struct
import time
from pathlib import Path

from ...base.errors import SaveError
from ...base.files.atomic import atomic_file
from ...base.machine.system import HAS_USERS
from ...base.options import settings

_log = logging.getLogger(__name__)

_MOST_FILES = 2000  # some 20 KB each
_ABANDONED = 3600  # seconds after which a temporary file belongs to no running process
_SUM = ".sha256"
_ELF_64 = b"\x7fELF\x02\x01"  # with the lowest byte first
_HEAD = struct.Struct("<16sHHIQQQIHHHHHH")


def cache_folder() -> Path | None:
    """`OPSCOPE_CACHE` or `opscope` in the user's cache folder, made where needed.

    None, and a warning that says why, unless it is writable, ours, and writable by no one else, nor
    any folder around it; a relative path and a link are refused as well.
    """
    named = settings.switch("OPSCOPE_CACHE")
    base = os.environ.get("LOCALAPPDATA") if os.name == "nt" else os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(named) if named else Path(base or Path.home() / ".cache") / "opscope"
        if not folder.is_absolute():
            return _refused(folder, "it is no absolute path")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        why = _open_to_others(folder)
    except (OSError, RuntimeError, ValueError) as error:
        _log.debug("no cache folder for compiled loops: %s", error)
        return None
    if why:
        return _refused(folder, why)
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def find(folder: Path, key: str) -> Path | None:
    """The library of that key, where there is one that is ours and whole."""
    path = folder / f"{key}.so"
    with contextlib.suppress(OSError, ValueError):
        checksum = read_own(path.with_suffix(_SUM), 100).decode().strip()
        if checksum == hashlib.sha256(read_own(path)).hexdigest():
            os.utime(path)  # in use
            return path
    return None


def check_whole(library: bytes) -> None:
    """Refuse a library that lost its end, as on a full disk: reading there would end the process.

    Only the form of libraries of 64 bits of Linux and its like, ELF, tells where the end is: its
    last part is a table whose place and size stand in the head.

    Raises:
        OSError: the end is missing.
    """
    if library.startswith(_ELF_64) and len(library) >= _HEAD.size:
        *_, begin, _, _, _, _, size, count, _ = _HEAD.unpack_from(library)
        if begin + size * count > len(library):
            raise OSError(f"the compiler wrote {len(library)} bytes of a library that has more")


def put(folder: Path, key: str, library: bytes) -> Path:
    """Keep a library; whole or not at all, also with two processes at work, or a power cut.

    Raises:
        OSError: the folder is not writable, or the disk is full.
    """
    path = folder / f"{key}.so"
    _prune(folder)
    for other in (path, path.with_suffix(_SUM)):
        other.unlink(missing_ok=True)  # a link would be followed, wrong permissions kept
    try:
        with atomic_file(path.with_suffix(_SUM), mode=0o600) as file:
            file.write(hashlib.sha256(library).hexdigest().encode() + b"\n")
        with atomic_file(path, mode=0o600) as file:
            file.write(library)
    except SaveError as error:
        raise OSError(str(error)) from error
    return path


@functools.cache
def _refused(folder: Path, why: str) -> None:
    _log.warning(
        "compiled loops are not kept for the next process: %s is not used, %s", folder, why
    )


def _open_to_others(folder: Path) -> str:
    """Why others could put something into a folder; empty where they could not."""
    if not HAS_USERS:
        return ""
    state = folder.lstat()
    if stat.S_ISLNK(state.st_mode):
        return "it is a link"
    if state.st_uid != os.getuid():
        return "it belongs to another user"
    if _writable_by_others(state):
        return "others may write there"
    # A link on the way lies in one of the first folders, what it points to in one of the second.
    for around in {*folder.parents, *folder.resolve().parents}:
        state = around.lstat()
        if state.st_uid not in (0, os.getuid()):
            return f"{around} belongs to another user"
        # In a folder with the sticky bit, as /tmp has it, others cannot move what is ours.
        if stat.S_ISDIR(state.st_mode) and not state.st_mode & stat.S_ISVTX:
            if _writable_by_others(state):
                return f"others may write to {around}"
    return ""


def _writable_by_others(state: os.stat_result) -> bool:
    if state.st_mode & stat.S_IWGRP and not _group_of_one(state.st_gid):
        return True
    return bool(state.st_mode & stat.S_IWOTH)


@functools.cache
def _group_of_one(group: int) -> bool:
    """Whether a group holds this user alone, as many systems make one for each user."""
    import grp  # noqa: PLC0415 - systems without users lack it
    import pwd  # noqa: PLC0415

    try:
        user = pwd.getpwuid(os.getuid())
        members = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        return False
    return user.pw_gid == group and members <= {user.pw_name}


def read_own(path: Path, most: int = -1) -> bytes:
    """What a file of ours holds.

    Raises:
        OSError: it is a link, no plain file, or others could have written it.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        state = os.fstat(handle)
        ours = not HAS_USERS or (
            state.st_uid == os.getuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        )
        if not (stat.S_ISREG(state.st_mode) and ours):
            raise PermissionError(f"{path} is no plain file of this user")
        return file.read(most)


def _prune(folder: Path) -> None:
    """Drop what killed processes left, and of too many libraries the half used longest ago."""
    with contextlib.suppress(OSError):  # another process may prune as well
        now = time.time()
        for path in (*folder.glob(".*.tmp"), *folder.glob("tmp*.so")):
            if path.lstat().st_mtime < now - _ABANDONED:
                path.unlink(missing_ok=True)
        paths = list(folder.glob("*.so"))
        if len(paths) >= _MOST_FILES:
            for path in sorted(paths, key=lambda path: path.stat().st_mtime)[: len(paths) // 2]:
                path.unlink(missing_ok=True)
                path.with_suffix(_SUM).unlink(missing_ok=True)
