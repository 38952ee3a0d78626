"""Libraries of C functions: found in the cache or compiled, loaded, and called.

A library's file name is a hash of all that it is made of, so that folders shared between machines
do no harm; `library_files` keeps it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.cpu import threads
from . import library_files

_log = logging.getLogger(__name__)

_TIMEOUT = 600
"""Seconds until a compiler counts for hung; on a busy machine a large file takes minutes."""
_LOWEST = 19  # of priorities
_NO_COMPILER = "none"


class Library:
    """A loaded library, or those of its functions whose names have one ending.

    Args:
        names: that the library must have, with their endings.

    Attributes:
        ending: of the names of its functions, which those who ask for them leave out.
        file: of the native library, without its ending; "" for one of fused loops.
        dtype: of its arrays, where it is for one.
        addresses: where each of its functions starts, by name.

    Raises:
        OSError: the file is no library of this system, or lacks one of `names`.
    """

    def __init__(
        self, path: Path, names: Iterable[str], ending: str = "", file: str = "", dtype: str = ""
    ) -> None:
        self._handle = ctypes.CDLL(str(path))
        self.ending = ending
        self.file = file
        self.dtype = dtype
        self._constants: dict[str, int] = {}
        self._functions: dict[str, Any] = {}
        self.addresses: Mapping[str, int] = _Addresses(self)
        for name in names:
            if not hasattr(self._handle, name):
                raise OSError(f"{path} lacks {name}")

    def reach_pool(self) -> Library:
        """Point the library to the pool of threads; returns it."""
        threads.most_threads()  # is decided now, if it was not
        for name, place in (("opscope_pool", threads.POOL), ("opscope_spin", threads.SPIN)):
            ctypes.c_void_p.in_dll(self._handle, name).value = ctypes.addressof(place)
        return self

    def function(self, name: str) -> Any:
        """A function that takes one address."""
        function = self._functions.get(name)
        if function is None:  # ctypes makes another object each time
            function = self._handle[name + self.ending]
            function.argtypes = (ctypes.c_void_p,)
            function.restype = None
            self._functions[name] = function
        return function

    def text(self, name: str) -> str:
        """A text of the library."""
        first = ctypes.c_char.in_dll(self._handle, name + self.ending)
        return ctypes.string_at(ctypes.addressof(first)).decode("ascii")

    def words(self, name: str, count: int) -> ctypes.Array[ctypes.c_int64]:
        """The first words of an array of the library."""
        return (ctypes.c_int64 * count).in_dll(self._handle, name + self.ending)

    def constant(self, name: str) -> int:
        """A number that a file of the native library exports: `NAME_FILE` in C."""
        if name not in self._constants:
            self._constants[name] = self.words(f"{name}_{self.file}", 1)[0]
        return self._constants[name]


class _Addresses(dict[str, int]):
    """Addresses of a library's functions, each looked up when it is first wanted."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def __missing__(self, name: str) -> int:
        self[name] = address(self._library.function(name))
        return self[name]


def address(function: Any) -> int:
    """Where a compiled function starts."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@functools.cache
def find_compiler(wanted: str) -> str | None:
    """Path of the compiler `wanted`, or of the first usual one; None where there is none.

    Where it is called "none" nothing looks for one.
    """
    if wanted == _NO_COMPILER:
        return None
    for name in (wanted,) if wanted else ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is not None:
            return os.path.realpath(path)
    if wanted:
        _log.warning("OPSCOPE_CC=%s is not there: nothing is compiled", wanted)
    return None


def from_cache(
    key: object, build: Callable[[Path], None], load: Callable[[Path], Library]
) -> Library:
    """A library of the cache, put there where it is missing.

    Args:
        key: all that it is made of, as values that print alike in every process.
        build: makes it at a path. load: loads it, or raises an OSError where it is not whole.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be made or loaded.
    """
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
    folder = library_files.cache_folder()
    if folder is not None:
        path = library_files.find(folder, name)
        if path is not None:
            with contextlib.suppress(OSError):  # of another system, or not ours: made again
                return load(path)

    import tempfile  # seldom needed, and slow to load

    # No TemporaryDirectory: the child of a fork, too, would remove it when it ends.
    passing = tempfile.mkdtemp(prefix="opscope-")
    try:
        built = Path(passing, "loops.so")
        build(built)
        data = built.read_bytes()
        library_files.check_whole(data)
        if folder is not None:
            try:
                return load(library_files.put(folder, name, data))
            except OSError as error:
                _log.debug("cache folder %s is not usable: %s", folder, error)
        return load(built)
    finally:
        shutil.rmtree(passing, ignore_errors=True)


class CompilersEnded(Exception):
    """The process ends: no compiler is run any more."""


_ending = threading.Event()
_running: set[subprocess.Popen[str]] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)  # the parent's, which ends them


def end_compilers() -> None:
    """End the compilers that run, and run no others."""
    _ending.set()
    for process in tuple(_running):
        process.kill()


def run(
    compiler: str,
    arguments: Sequence[str],
    source: str = "",
    *,
    check: bool = True,
    low_priority: bool = False,
) -> bool:
    """Run the compiler; whether it took the source.

    Args:
        check: whether it is an error where it did not. low_priority: leave the cores to others.

    Raises:
        OSError, subprocess.SubprocessError: it could not be run, or failed and `check` says so.
        CompilersEnded: the process ends.
    """
    pipe = subprocess.PIPE
    command = [compiler, *arguments]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        _running.add(process)
        try:
            if _ending.is_set():
                process.kill()
            if low_priority and hasattr(os, "setpriority"):
                with contextlib.suppress(OSError):  # it has ended already
                    os.setpriority(os.PRIO_PROCESS, process.pid, _LOWEST)
            out, errors = process.communicate(source, _TIMEOUT)
        except BaseException:
            process.kill()
            raise
        finally:
            _running.discard(process)
    if _ending.is_set():
        raise CompilersEnded
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out, errors)
    return process.returncode == 0


def state(compiler: str) -> tuple[str, int, int]:
    """The compiler, and its size and time: they stand for its version, which only running it would
    tell."""
    status = os.stat(compiler)
    return compiler, status.st_size, status.st_mtime_ns
