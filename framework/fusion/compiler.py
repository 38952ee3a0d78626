"""Compiles fused loops with the system's C compiler, and keeps the libraries on disk.

The loops of one plan go through the compiler together, very many of them in batches. A library's
file name is a hash of source, flags, compiler and processor, so that folders shared between
machines do no harm; `library_files` keeps it. Without a compiler, or when it fails, everything
still runs, operator by operator.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..base import settings
from ..base.cpu import threads
from ..base.errors import OpscopeError
from ..base.python.cached import new_rlock
from . import library_files
from .codegen import C_PRELUDE, HEAD, Loop, c_function_name, c_source

_log = logging.getLogger(__name__)

_FLAGS = (
    *("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math"),
    # glibc declares the vector variants of exp, tanh and so on under this macro only; the flag
    # -ffast-math itself would lose NaN and infinity.
    "-D__FAST_MATH__",
    *("-w", "-fPIC", "-shared"),
)
_X86 = platform.machine().lower() in ("x86_64", "amd64")
_WIDE = ("-mprefer-vector-width=512",) if _X86 else ()
_EXPORTED = re.compile(r"^EXPORT [^(=;\[]*?(\w+)\s*[(=;\[]", re.MULTILINE)
_TIMEOUT = 120  # seconds
_MOST_TEXT = 1 << 17  # characters of one call's loops: up to 10 s of a compiler's time
_NO_COMPILER = "none"


class Library:
    """A loaded library: functions by loop key.

    Raises:
        OSError: the file is no library of this system, or lacks one of `names`.
    """

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        self.handle = ctypes.CDLL(str(path))
        for name in names:
            if not hasattr(self.handle, name):
                raise OSError(f"{path} lacks {name}")
        threads.most_threads()  # is decided now, if it was not
        self.point("opscope_pool", ctypes.addressof(threads.POOL))
        self.point("opscope_entry", ctypes.addressof(threads.ENTRY))

    def function(self, name: str) -> Any:
        """A function that takes one address."""
        found = self.handle[name]
        found.argtypes, found.restype = (ctypes.c_void_p,), None
        return found

    def address(self, name: str) -> int:
        """Where a function starts."""
        return address(self.function(name))

    def point(self, name: str, *addresses: int) -> None:
        """Set a pointer of the library, or an array of them."""
        found = (ctypes.c_void_p * len(addresses)).in_dll(self.handle, name)
        found[:] = addresses


_lock = new_rlock()
_functions: dict[str, Compiled] = {}
_libraries: dict[tuple[str, str], Library] = {}  # (compiler, text) -> what is loaded
_refused: set[tuple[str, str]] = set()  # (compiler, loop key) that the compiler does not take
_broken: set[str] = set()  # compilers that took nothing at all


def available() -> bool:
    """Whether there is a C compiler to try."""
    found = find_compiler(settings.switch("OPSCOPE_CC"))
    return found is not None and found not in _broken


@functools.cache
def find_compiler(wanted: str) -> str | None:
    """Path of the compiler `wanted`, or of the first usual one; None where there is none.

    Where it is called "none" nobody looks for one.
    """
    if wanted == _NO_COMPILER:
        return None
    for name in (wanted,) if wanted else ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found is not None:
            return os.path.realpath(found)
    if wanted:
        _log.warning("OPSCOPE_CC=%s is not there: operators run unfused", wanted)
    return None


def loaded(loops: Iterable[Loop]) -> bool:
    """Whether all of `loops` are compiled and loaded."""
    return all(loop.key in _functions for loop in loops)


def address(function: Any) -> int:
    """Where a compiled function starts."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class Compiled(NamedTuple):
    """A compiled loop.

    Attributes:
        function: runs it. share: address of the function that does one thread's share of it.
        run_list: runs a list of loops.
    """

    function: Any
    share: int
    run_list: Any


def functions(loops: Sequence[Loop]) -> list[Compiled] | None:
    """The compiled loops; None where one of them cannot be compiled, which is logged once."""
    with _lock:
        missing = {loop.key: loop for loop in loops if loop.key not in _functions}
        if missing and not compile_loops(list(missing.values())):
            return None
        return [_functions[loop.key] for loop in loops]


def library(source: str) -> Library | None:
    """A library of functions that threads may share; the text has `EXPORT` before each of them.

    Each text is loaded once, as what a library counts it counts for all. None where it cannot be
    compiled; that is logged.
    """
    compiler = find_compiler(settings.switch("OPSCOPE_CC"))
    if compiler is None or compiler in _broken:
        return None
    with _lock:
        found = _libraries.get((compiler, source))
        if found is None:
            found = _try_library(compiler, HEAD + source)
            if found is not None:
                _libraries[compiler, source] = found
        return found


def compile_loops(loops: Sequence[Loop]) -> bool:
    """Compile and load whichever of `loops` are not loaded; true where all of them are then."""
    compiler = find_compiler(settings.switch("OPSCOPE_CC"))
    with _lock:
        wanted = {loop.key: loop for loop in loops if loop.key not in _functions}
        if compiler is None or compiler in _broken:
            return not wanted
        new = [loop for key, loop in sorted(wanted.items()) if (compiler, key) not in _refused]
        for batch in _batches(new):
            if not _load(compiler, batch) and len(batch) > 1:
                for loop in batch:  # one bad expression must not spoil the others
                    _load(compiler, {loop: batch[loop]})
        for loop in new:
            if loop.key not in _functions:
                _refused.add((compiler, loop.key))
        if new and not _functions:
            _broken.add(compiler)
        return all(key in _functions for key in wanted)


def _batches(loops: Iterable[Loop]) -> Iterator[dict[Loop, str]]:
    """Loops with their text, cut into what one call of the compiler takes."""
    batch: dict[Loop, str] = {}
    size = 0
    for loop in loops:
        text = c_source(loop)
        if batch and size + len(text) > _MOST_TEXT:
            yield batch
            batch, size = {}, 0
        batch[loop] = text
        size += len(text)
    if batch:
        yield batch


def _load(compiler: str, loops: Mapping[Loop, str]) -> bool:
    source = C_PRELUDE + "\n" + "\n".join(loops.values())
    library = _try_library(compiler, source)
    if library is None:
        return False
    run_list = library.function("opscope_list")
    for loop in loops:
        name = c_function_name(loop)
        share = address(library.function(f"{name}_share"))
        _functions[loop.key] = Compiled(library.function(name), share, run_list)
    return True


def _try_library(compiler: str, source: str) -> Library | None:
    try:
        return _library(compiler, source)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or error
        _log.warning("fused loops cannot be compiled, running op by op: %s", detail)
        return None


def _library(compiler: str, source: str) -> Library:
    """The library of a source: from the cache, or compiled.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be made or loaded.
    """
    names = _EXPORTED.findall(source)
    folder = library_files.cache_folder()
    if folder is not None:
        key = _key(compiler, source)
        path = library_files.find(folder, key)
        if path is not None:
            with contextlib.suppress(OSError):  # of another system, or not ours: made again
                return Library(path, names)

    import tempfile  # seldom needed, and slow to load

    with tempfile.TemporaryDirectory(prefix="opscope-", ignore_cleanup_errors=True) as passing:
        made = Path(passing, "loops.so")
        _compile(compiler, source, str(made))
        data = made.read_bytes()
        library_files.check_whole(data)
        if folder is not None:
            try:
                return Library(library_files.put(folder, key, data), names)
            except OSError as error:
                _log.debug("cache folder %s is not usable: %s", folder, error)
        return Library(made, names)


def _flag_sets() -> tuple[tuple[str, ...], ...]:
    """Flags of the compiler: the first set that it takes serves.

    Raises:
        OpscopeError: OPSCOPE_MARCH is none of its choices, or a level of another processor.
    """
    march = settings.switch("OPSCOPE_MARCH")
    if march != "native" and not _X86:
        raise OpscopeError(f"OPSCOPE_MARCH={march}: want native on {platform.machine()}")
    return (
        (*_FLAGS, f"-march={march}", *_WIDE, "-fopenmp-simd", "-pthread"),
        (*_FLAGS, "-fopenmp-simd"),
        _FLAGS,
    )


def _compile(compiler: str, source: str, target: str) -> None:
    for last, flags in zip((False, False, True), _flag_sets(), strict=True):
        done = subprocess.run(
            [compiler, *flags, "-x", "c", "-", "-o", target, "-lm"],
            input=source,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=last,
        )
        if done.returncode == 0:
            return


def _key(compiler: str, source: str) -> str:
    state = os.stat(compiler)
    told = (source, _flag_sets(), compiler, state.st_size, state.st_mtime_ns, _processor())
    return hashlib.sha256(repr(told).encode()).hexdigest()[:32]


@functools.cache
def _processor() -> str:
    """The facts about this processor that `-march=native` depends on."""
    told = [sys.platform, platform.machine()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        told += sorted({line for line in lines if line.startswith(wanted)})
    return "\n".join(told)
