"""The native library: fixed functions in C, for the processor that is there (see native/units.py).

In a wheel, and in a tree that `build.py` has installed, the whole library is built. Elsewhere a
file of it is compiled when it is first wanted, where there is a compiler, and kept in the cache.
Where there is neither, NumPy computes.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ....native import units
from ....native.units import Processor, Unit
from ...base.errors import OpscopeError
from ...base.options import settings
from ...base.options.settings import read_options
from ...base.python.cached import new_rlock
from . import arguments
from .arguments import Block
from .libraries import Library, find_compiler, from_cache, run, state

_log = logging.getLogger(__name__)

C_TYPES = {"float32": "float", "float64": "double"}
"""Dtypes of the functions for each floating type, and how C calls them."""
_KINDS = {np.dtype(dtype): kind for dtype, kind in C_TYPES.items()}  # names of dtypes are slow
_DTYPES = {kind: dtype for dtype, kind in C_TYPES.items()}
_BEST, _NONE = "best", "none"
_TEAM = Unit("team")

_lock = new_rlock()
_loaded: dict[tuple[Unit, bool, str, str], Library | None] = {}  # by what the switches said


def load(file: str, kind: str = "") -> Library | None:
    """The functions of a C file for some kind of numbers and this processor.

    Code that multiplies tiles of AMX serves where the option `amx` has it so.

    Returns:
        None where no library was built and there is no compiler; where this processor, or the
        compiler, has nothing of what the file needs; and for `OPSCOPE_CPU=none`.

    Raises:
        OpscopeError: OPSCOPE_CPU names no kind of processor that this one is.
    """
    unit = Unit(file, kind)
    if file in units.ALONE:
        return _kept(unit, unit.processors)
    tiles = file in units.TILED_FILES and read_options().amx
    return _kept(unit, partial(_processors, unit, tiles), tiles)


def typed(file: str, dtype: np.dtype | type) -> Library | None:
    """`load` for arrays of a dtype; None also where it is neither float32 nor float64."""
    kind = _KINDS.get(np.dtype(dtype))
    return None if kind is None else load(file, kind)


def function(file: str, dtype: np.dtype | type, name: str) -> int:
    """Address of a function of `typed`, which is there."""
    library = typed(file, dtype)
    assert library is not None, "the caller has seen that it is there"
    return library.addresses[name]


def bind(file: str, dtype: np.dtype | type, function: str, /, **values: Any) -> Block:
    """The argument of a function of `typed`, which is there; see `arguments.bind`."""
    library = typed(file, dtype)
    assert library is not None, "the caller has seen that it is there"
    return arguments.bind(library, function, **values)


def chosen() -> Processor | None:
    """The kind of processor that OPSCOPE_CPU names; None where it leaves the choice to us.

    Raises:
        OpscopeError: this processor is none of that kind.
    """
    wanted = settings.switch("OPSCOPE_CPU")
    here = () if wanted in (_BEST, _NONE) else kinds_here()
    for one in here:
        if one.name == wanted:
            return one
    if here:
        names = ", ".join(one.name for one in here)
        raise OpscopeError(f"OPSCOPE_CPU={wanted}: this processor has {names} alone")
    return None


def kinds_here() -> tuple[Processor, ...]:
    """What kinds of processor this one is, the simplest first; none where that cannot be seen."""
    team = _kept(_TEAM, _TEAM.processors)
    if team is None:
        return ()
    asked = arguments.bind(team, "opscope_processor")
    asked.run()
    return tuple(one for bit, one in enumerate(units.processors()) if asked.struct.kinds >> bit & 1)


@functools.cache
def _grants_tiles() -> bool:
    """Whether the system lets this process use the tiles that the processor has."""
    team = load(_TEAM.file)
    assert team is not None, "it has said that the processor has tiles"
    asked = arguments.bind(team, "opscope_tiles")
    asked.run()
    return bool(asked.struct.granted)


def described() -> str:
    """Where the native functions come from, and for what kind of processor, in words."""
    here = kinds_here()
    if not here:
        return "none: it was not built, and there is no compiler (OPSCOPE_CC), or OPSCOPE_CPU=none"
    how = "built" if _all_built() else "compiled file by file"
    return f"{how}, for {(chosen() or here[-1]).name}"


def _all_built() -> bool:
    """Whether functions come from the whole library: a compiler that is named compiles them, as one
    with sanitizers should."""
    return settings.switch("OPSCOPE_CC") in ("", _NONE) and is_built()


def _kept(
    unit: Unit, processors: Callable[[], tuple[Processor, ...]], tiles: bool = False
) -> Library | None:
    """A unit for the first of the processors for which it can be had; looked for once."""
    wanted = settings.switch("OPSCOPE_CPU")
    if wanted == _NONE:
        return None
    key = unit, tiles, wanted, settings.switch("OPSCOPE_CC")
    with _lock:
        if key not in _loaded:
            get = _built if _all_built() else _compiled
            tried = (get(unit, processor) for processor in processors())
            _loaded[key] = next((library for library in tried if library is not None), None)
        return _loaded[key]


def kinds() -> tuple[Processor, ...]:
    """`kinds_here`; where OPSCOPE_CPU names one, that one and those that it is based on."""
    here, most = kinds_here(), chosen()
    if most is None:
        return here
    names = [most.name]
    for one in reversed(here):
        if one.name == names[-1]:
            names.append(one.base)
    return tuple(one for one in here if one.name in names)


def _processors(unit: Unit, tiles: bool) -> tuple[Processor, ...]:
    """The kinds of processor that a unit may be loaded for, the best first."""
    here = kinds()
    found = (one for one in reversed(unit.processors()) if one in here)
    return tuple(one for one in found if one.name != units.TILED or (tiles and _grants_tiles()))


@functools.cache
def is_built() -> bool:
    """Whether the whole library is there, of these C files; one of others is refused."""
    if not units.BUILT.exists():
        return False
    try:
        handle = ctypes.CDLL(str(units.BUILT))
        version = (ctypes.c_char * len(units.digest())).in_dll(handle, "opscope_version").value
    except (OSError, ValueError) as error:
        _log.warning("%s is not used: %s", units.BUILT, error)
        return False
    if version.decode("ascii", "replace") != units.digest():
        _log.warning(
            "%s is not used: it was built of other C files (version %s, not %s); build it anew",
            *(units.BUILT, version.decode("ascii", "replace"), units.digest()),
        )
        return False
    return True


def _built(unit: Unit, processor: Processor) -> Library | None:
    try:
        return _library(units.BUILT, unit, processor)
    except OSError:  # the compiler that built it did not take this unit
        return None


def _compiled(unit: Unit, processor: Processor) -> Library | None:
    compiler = find_compiler(settings.switch("OPSCOPE_CC"))
    if compiler is None:
        return None
    options = unit.arguments(processor)

    def build(target: Path) -> None:
        units.write_headers(target.parent)
        headers = ["-I", str(target.parent)]
        run(compiler, [*headers, *options, *units.link_flags(), "-o", str(target), "-lm"])

    # Not the path of the file, which is another one in another environment.
    key = state(compiler), units.text(unit.file), options[:-1], os.name
    try:
        return from_cache(key, build, lambda path: _library(path, unit, processor))
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or error
        _log.warning("%s cannot be compiled, NumPy does its work: %s", unit.path, detail)
        return None


def _library(path: Path, unit: Unit, processor: Processor) -> Library:
    marker, ending = unit.marker(processor), unit.suffix(processor)
    library = Library(path, [marker], ending, unit.file, _DTYPES.get(unit.kind, ""))
    return library.reach_pool() if unit.file in units.ALONE else library
