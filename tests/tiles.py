"""Tiles of AMX for tests: those of the processor, else those of tests/native/tiles_in_c.h."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
from pathlib import Path

import pytest

from opscope.framework.base.options import settings
from opscope.framework.base.options.settings import read_options
from opscope.framework.fusion import team
from opscope.framework.fusion.compiled import libraries, native
from opscope.framework.fusion.compiled.libraries import Library
from opscope.native import units

_HEADER = Path(__file__).parent / "native" / "tiles_in_c.h"
_VECTORS = {"3": "avx512", "float": "avx512", "1": "avx512bf16", "": "avx512bf16"}
"""The processor that code for so many terms, for floats, or for bytes wants beside tiles."""


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code for AMX runs: by the processor, else by `in_c`."""
    if team.library() is None:
        pytest.skip("there is no native library")
    if not read_options().amx:
        pytest.skip("OPSCOPE_AMX=0 turns tiles off")
    if native.load("bf16_gemm", "3") is not None:
        return
    # What OPSCOPE_CPU leaves out may still run the tiles in C.
    here = [one.name for one in native.kinds_here()]
    if _VECTORS["3"] not in here:
        pytest.skip("there is no AMX and no AVX-512")
    if libraries.find_compiler(settings.switch("OPSCOPE_CC")) is None:
        pytest.skip("there is no AMX and no compiler")
    load = native.load

    def by_tiles(file: str, kind: str = "") -> Library | None:
        if file in units.TILED_FILES and read_options().amx and _VECTORS[kind] in here:
            return in_c(file, kind)
        return load(file, kind)

    monkeypatch.setattr(native, "load", by_tiles)


@functools.cache
def in_c(file: str, kind: str) -> Library:
    """The functions of a file for AMX, whose tiles are in C; an error where it has any."""
    unit = units.Unit(file, kind)
    by_name = {one.name: one for one in units.processors()}
    flags = by_name[_VECTORS[kind]].flags
    processor = dataclasses.replace(by_name[units.TILED], flags=flags)
    compiler = libraries.find_compiler(settings.switch("OPSCOPE_CC"))
    assert compiler is not None
    options = ["-include", str(_HEADER), *unit.arguments(processor)]

    def build(target: Path) -> None:
        units.write_headers(target.parent)
        made = ["-I", str(target.parent), *options, "-shared", "-o", str(target), "-lm"]
        try:
            libraries.run(compiler, made)
        except subprocess.CalledProcessError as error:
            pytest.fail(error.stderr)

    def load(path: Path) -> Library:
        dtype = "float32" if kind == "float" else ""
        return Library(path, [unit.marker(processor)], unit.suffix(processor), unit.file, dtype)

    # Not the paths of both files, which are others in another tree.
    texts = _HEADER.read_text(encoding="utf-8"), units.text(unit.file)
    key = libraries.state(compiler), texts, options[2:-1]
    return libraries.from_cache(key, build, load)
