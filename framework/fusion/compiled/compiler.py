"""Compiles fused loops with the system's C compiler, and keeps the libraries on disk.

A compiled loop is somewhat faster than the interpreter (chains.py) and gives the same bits. Each is
a library of its own: from disk it serves every net that has the loop. hot.py says which these are.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import platform
import re
import subprocess
import sys
from pathlib import Path

from ....native.units import COMMON_FLAGS, EXACT_FLAG
from ...base.options import settings
from ...base.python.cached import new_rlock
from .. import chains
from . import native
from .c_source import c_function_name, c_prelude, c_source
from .libraries import CompilersEnded, Library, find_compiler, from_cache, run, state

_log = logging.getLogger(__name__)

_FLAGS = (*COMMON_FLAGS, EXACT_FLAG, "-shared")
_X86 = platform.machine().lower() in ("x86_64", "amd64")
_WIDE = ("-mprefer-vector-width=512",) if _X86 else ()
_EXPORTED = re.compile(r"^EXPORT [^(=;\[]*?(\w+)\s*[(=;\[]", re.MULTILINE)


_lock = new_rlock()
_functions: dict[str, int] = {}  # by a loop's key: the address of its function
_refused: set[tuple[str, str]] = set()  # (compiler, loop key) that the compiler does not take
_broken: set[str] = set()  # compilers that took nothing at all


def available() -> bool:
    """Whether there is a C compiler to try."""
    compiler = find_compiler(settings.switch("OPSCOPE_CC"))
    return compiler is not None and compiler not in _broken


def compile_loop(program: chains.Program) -> bool:
    """Compile a loop where it is not, and let its program run it from now on.

    Returns:
        Whether it is compiled then.
    """
    compiler = find_compiler(settings.switch("OPSCOPE_CC"))
    loop = program.loop
    with _lock:
        if compiler is None or compiler in _broken or (compiler, loop.key) in _refused:
            return False
        if loop.key not in _functions:
            library = _try_library(compiler, c_prelude() + "\n" + c_source(loop, *program.tables))
            if library is None:
                _refused.add((compiler, loop.key))
                # Nothing at all could be compiled: each loop would run the compiler in vain.
                if not _functions:
                    _broken.add(compiler)
                return False
            _functions[loop.key] = library.addresses[c_function_name(loop)]
        program.use(_functions[loop.key])
        return True


def _try_library(compiler: str, source: str) -> Library | None:
    try:
        return _library(compiler, source)
    except CompilersEnded:
        return None
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
            if run(compiler, arguments, source, check=last, low_priority=True):
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
    facts = [sys.platform, platform.machine()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        facts += sorted({line for line in lines if line.startswith(wanted)})
    return "\n".join(facts)
