"""Compiles fused loops with the system's C compiler, and keeps the libraries on disk.

The loops of one plan go through the compiler together, very many of them in batches. Without a
compiler, or when it fails, everything still runs, by the interpreter (chains.py).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ...native.units import COMMON_FLAGS
from ..base import settings
from ..base.python.cached import new_rlock
from . import chains, native
from .codegen import Loop, c_function_name, c_prelude, c_source
from .libraries import Library, find_compiler, from_cache, run, state

_log = logging.getLogger(__name__)

_FLAGS = (*COMMON_FLAGS, "-shared")
_X86 = platform.machine().lower() in ("x86_64", "amd64")
_WIDE = ("-mprefer-vector-width=512",) if _X86 else ()
_EXPORTED = re.compile(r"^EXPORT [^(=;\[]*?(\w+)\s*[(=;\[]", re.MULTILINE)
_MOST_TEXT = 1 << 17  # characters of one call's loops: up to 10 s of a compiler's time


_lock = new_rlock()
_functions: dict[str, int] = {}  # by a loop's key: the address of its function
_refused: set[tuple[str, str]] = set()  # (compiler, loop key) that the compiler does not take
_broken: set[str] = set()  # compilers that took nothing at all


def available() -> bool:
    """Whether there is a C compiler to try."""
    found = find_compiler(settings.switch("OPSCOPE_CC"))
    return found is not None and found not in _broken


def compile_loops(loops: Sequence[Loop]) -> bool:
    """Compile whichever of `loops` are not, and let their programs run them.

    Returns:
        Whether all of them are compiled then.
    """
    compiler = find_compiler(settings.switch("OPSCOPE_CC"))
    with _lock:
        wanted = {loop.key: loop for loop in loops if loop.key not in _functions}
        if compiler is None or compiler in _broken:
            return not wanted
        # Sorted: the same loops give the same text, and so the same file in the cache, in any
        # order.
        new = [loop for key, loop in sorted(wanted.items()) if (compiler, key) not in _refused]
        for batch in _batches(new):
            if not _load(compiler, batch) and len(batch) > 1:
                for loop in batch:  # one bad expression must not spoil the others
                    _load(compiler, {loop: batch[loop]})
        for loop in new:
            if loop.key not in _functions:
                _refused.add((compiler, loop.key))
        # Nothing at all could be compiled: each plan would run the compiler in vain.
        if new and not _functions:
            _broken.add(compiler)
        for loop in loops:
            found = chains.program(loop)
            if found is not None and loop.key in _functions:
                found.use(_functions[loop.key])
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
    source = c_prelude() + "\n" + "\n".join(loops.values())
    library = _try_library(compiler, source)
    if library is None:
        return False
    for loop in loops:
        _functions[loop.key] = library.address(c_function_name(loop))
    return True


def _try_library(compiler: str, source: str) -> Library | None:
    try:
        return _library(compiler, source)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or error
        _log.warning("fused loops cannot be compiled and stay interpreted: %s", detail)
        return None


def _library(compiler: str, source: str) -> Library:
    """The library of a source: from the cache, or compiled.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be made or loaded.
    """
    key = state(compiler), source, _flag_sets(), _processor()

    def build(target: Path) -> None:
        # Fewer flags each time: an old compiler lacks some. Only the last failure counts.
        for last, flags in zip((False, False, True), _flag_sets(), strict=True):
            arguments = [*flags, "-x", "c", "-", "-o", str(target), "-lm"]
            if run(compiler, arguments, source, check=last):
                return

    def load(path: Path) -> Library:
        return Library(path, _EXPORTED.findall(source))

    return from_cache(key, build, load)


def _flag_sets() -> tuple[tuple[str, ...], ...]:
    """Flags of the compiler: the first set that it takes serves.

    Raises:
        OpscopeError: OPSCOPE_CPU names no kind of processor that this one is.
    """
    chosen = native.chosen()
    these = ("-march=native", *_WIDE) if chosen is None else chosen.flags
    return (
        (*_FLAGS, *these, "-fopenmp-simd", "-pthread"),
        (*_FLAGS, "-fopenmp-simd"),
        _FLAGS,
    )


@functools.cache
def _processor() -> str:
    """The facts about this processor that `-march=native` depends on."""
    told = [sys.platform, platform.machine()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        told += sorted({line for line in lines if line.startswith(wanted)})
    return "\n".join(told)
