"""The native library: built whole or file by file, and for the kind of processor that is asked
for."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.framework.fusion.compiled import compiler, native
from opscope.native import building, constants, units
from opscope.native.units import Unit

pytestmark = pytest.mark.skipif(
    not compiler.available() or sys.platform == "win32", reason="there is no C compiler"
)
_FEW = {"glibc": ("",), "team": ("",), "rows": ("float",)}
_Share = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
"""A function that threads share: argument, part, parts."""


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: Any) -> Iterator[None]:
    monkeypatch.setattr(native, "_loaded", {})
    native.is_built.cache_clear()
    yield
    native.is_built.cache_clear()


@pytest.fixture
def built(monkeypatch: Any, tmp_path: Path) -> Path:
    """A library of few files in the place of the whole one."""
    monkeypatch.setattr(units, "KINDS", _FEW)
    monkeypatch.setattr(units, "BUILT", tmp_path / "opscope_native.so")
    found = building.find_compiler()
    assert found is not None
    building.build(found, units.BUILT)
    return units.BUILT


def softmax(x: np.ndarray) -> np.ndarray:
    """The softmax of rows, by the native function."""
    out = np.empty_like(x)
    words = np.array([*x.shape, x.ctypes.data, out.ctypes.data, 0], np.int64)
    share = _Share(native.function("rows", x.dtype, "softmax"))
    share(words.ctypes.data, 0, 1)
    return out


def right(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(1, keepdims=True), dtype=np.float64)
    return powers / powers.sum(1, keepdims=True)


def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(7, 45)).astype(np.float32)


def test_the_whole_library_serves_without_a_compiler(built: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPSCOPE_CC", "none")
    assert native.is_built()
    np.testing.assert_allclose(softmax(rows()), right(rows()), rtol=1e-5)
    # What the library lacks is nowhere then.
    assert native.load("rows", "double") is None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="kinds of x86-64")
def test_every_kind_of_processor_computes_the_same(built: Path, monkeypatch: Any) -> None:
    names = [one.name for one in native.kinds_here()]
    assert names[0] == "sse4"
    for name in names:
        monkeypatch.setenv("OPSCOPE_CPU", name)
        np.testing.assert_allclose(softmax(rows()), right(rows()), rtol=1e-5)
        found, chain = native.load("rows", "float"), native.kinds()
        own = [one.name for one in chain if one.takes("rows", "float")]
        assert found is not None and found.ending == f"_float_{own[-1]}"
        assert chain[-1].name == name
        for before, after in pairwise(chain):  # none has instructions that the last one lacks
            assert after.base == before.name


_ALONE = """
import ctypes, sys
import numpy as np
library, x, out = ctypes.CDLL(sys.argv[1]), np.load(sys.argv[2]), []
for name in sys.argv[4:]:
    out.append(np.empty_like(x))
    words = np.array([*x.shape, x.ctypes.data, out[-1].ctypes.data, 0], np.int64)
    library[name](ctypes.c_void_p(words.ctypes.data), ctypes.c_int64(0), ctypes.c_int64(1))
assert sys.argv[3] in open("/proc/self/maps").read()
np.save(sys.argv[2], out)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="vector functions of x86-64")
def test_an_older_glibc_serves(built: Path, tmp_path: Path) -> None:
    """Nothing newer than glibc 2.17 is wanted; vector functions that it lacks go lane by lane."""
    assert building.platform_tag(built, "x86_64") == "manylinux_2_17_x86_64"
    compiler, empty, path = building.find_compiler(), tmp_path / "libmvec.so.1", tmp_path / "x.npy"
    assert compiler is not None
    compiler.run("-shared", "-x", "c", os.devnull, "-o", str(empty))
    np.save(path, rows())
    kinds = (one for one in native.kinds_here() if one.takes("rows", "float"))
    names = [f"softmax_float_{one.name}" for one in kinds]
    command = [sys.executable, "-c", _ALONE, *map(str, (built, path, empty)), *names]
    subprocess.run(command, env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}, check=True)
    for found in np.load(path):
        np.testing.assert_allclose(found, right(rows()), rtol=1e-5)


def test_a_file_is_compiled_where_the_library_was_not_built(
    monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(units, "BUILT", tmp_path / "nothing.so")
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    np.testing.assert_allclose(softmax(rows()), right(rows()), rtol=1e-5)
    assert len(list(tmp_path.glob("cache/*.so"))) == 2  # this file, and that of the team
    monkeypatch.setenv("OPSCOPE_CC", "none")
    assert native.load("rows", "float") is None


def test_a_library_of_other_files_is_refused_by_name(
    built: Path, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setattr(units, "digest", lambda: "0" * 32)
    assert not native.is_built()
    assert str(built) in caplog.text and "0" * 32 in caplog.text


def test_what_is_no_library_is_refused_by_name(
    monkeypatch: Any, tmp_path: Path, caplog: Any
) -> None:
    monkeypatch.setattr(units, "BUILT", tmp_path / "opscope_native.so")
    units.BUILT.write_bytes(b"no library")
    assert not native.is_built()
    assert str(units.BUILT) in caplog.text


def test_a_compiler_that_is_named_compiles_what_was_built(
    built: Path, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPSCOPE_CC", "cc")
    assert native.load("rows", "float") is not None
    assert len(list(tmp_path.glob("cache/*.so"))) == 2


def test_kinds_of_processor_that_are_not_there(monkeypatch: Any) -> None:
    monkeypatch.setenv("OPSCOPE_CPU", "none")
    assert native.load("team") is None
    monkeypatch.setenv("OPSCOPE_CPU", "avx1024")
    with pytest.raises(OpscopeError, match="OPSCOPE_CPU=avx1024: want one of best, none, sse4, "):
        native.load("rows", "float")
    other = "neon" if platform.machine() == "x86_64" else "avx2"
    monkeypatch.setenv("OPSCOPE_CPU", other)
    with pytest.raises(OpscopeError, match=f"OPSCOPE_CPU={other}: this processor has .* alone"):
        native.load("rows", "float")


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="asks the system")
def test_the_processor_is_what_the_system_says() -> None:
    flags = set(re.findall(r"\w+", Path("/proc/cpuinfo").read_text(errors="replace")))
    wants = {
        "sse4": {"sse4_1", "sse4_2", "ssse3", "popcnt", "cx16"},
        "avx2": {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"},
        "avxvnni": {"avx_vnni"},
        "avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
        "avx512bf16": {"avx512_bf16", "avx512_vnni"},
        "amx": {"amx_bf16", "amx_tile", "amx_int8"},
    }
    if platform.machine() == "x86_64":
        here = [""]
        for one in units.processors():
            if one.base in here and wants[one.name] <= flags:
                here.append(one.name)
        assert ["", *(one.name for one in native.kinds_here())] == here


def test_each_file_is_in_the_table_and_has_the_numbers() -> None:
    assert {path.stem for path in units.FOLDER.glob("*.c")} == set(units.KINDS)
    headers = {path.name for path in units.FOLDER.glob("*.h")}
    used = {name for file in units.KINDS for name in units.included(file)}
    assert used == headers | units.made_headers().keys()
    for name in constants.macros():
        assert any(name in units.text(file) for file in units.KINDS), name


def test_the_compiler_takes_every_file(tmp_path: Path, caplog: Any) -> None:
    """Else another kind of processor serves, or NumPy, and tests of the file are skipped."""
    if not native.is_built():
        for unit in units.units():
            native.load(unit.file, unit.kind)
            assert "cannot be compiled" not in caplog.text, caplog.text
        return
    found, content = building.find_compiler(), units.BUILT.read_bytes()
    assert found is not None
    units.write_headers(tmp_path)
    for unit in units.units():
        for processor in unit.processors():
            if b"\0%s\0" % unit.marker(processor).encode() not in content:
                takes_flags, _ = compiled(found, *processor.flags, "-x", "c", os.devnull)
                arguments = unit.arguments(processor)
                takes_file, errors = compiled(found, "-I", str(tmp_path), *arguments)
                # The build left it out, and shall where the flags are too new for the compiler.
                assert not takes_file and not takes_flags, errors or "what was built is not whole"


def compiled(compiler: building.Compiler, *arguments: str) -> tuple[bool, str]:
    """Whether it compiles what these say; its messages."""
    command = [*compiler.command, *arguments, "-S", "-o", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode == 0, done.stderr


def test_names_that_a_library_exports_are_its_own(built: Path) -> None:
    """The linker refuses a name twice; nothing else must be seen from outside."""
    listed = subprocess.run(["nm", "-D", "--defined-only", built], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("there is no nm")
    names = {line.split()[-1] for line in listed.stdout.splitlines()}
    endings = {unit.suffix(one) for unit in units.units() for one in unit.processors()} - {""}
    ours = "opscope_", "unit_", "_"  # the last are the linker's
    assert [n for n in names if not n.startswith(ours) and not n.endswith(tuple(endings))] == []


def test_a_wheel_says_which_glibc_it_needs(built: Path) -> None:
    tag = building.platform_tag(built, "x86_64")
    if sys.platform == "linux" and os.confstr("CS_GNU_LIBC_VERSION"):
        assert tag is not None and re.fullmatch(r"manylinux_2_\d+_x86_64", tag)
        here = os.confstr("CS_GNU_LIBC_VERSION").split(".")[-1]
        assert int(tag.split("_")[2]) <= int(here)


_SOFTMAX = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
int main(int argc, char **argv) {
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library) { puts(dlerror()); return 1; }
  int64_t kind[1];
  ((void (*)(int64_t *))dlsym(library, "opscope_processor"))(kind);
  float x[45], y[45];
  for (int i = 0; i < 45; i++) x[i] = i % 7;
  int64_t words[] = {1, 45, (int64_t)x, (int64_t)y, 0};
  ((void (*)(int64_t *, int64_t, int64_t))dlsym(library, "softmax_float_neon"))(words, 0, 1);
  printf("%d", (int)kind[0]);
  for (int i = 0; i < 45; i++) printf(" %.9g", y[i]);
}
"""
"""Loads a library and calls a function of it, without Python."""


@pytest.mark.slow
def test_the_library_of_another_machine_runs_under_qemu(tmp_path: Path, monkeypatch: Any) -> None:
    """The whole of it is cross-compiled, with no file left out."""
    cross, qemu = "aarch64-linux-gnu-gcc", "qemu-aarch64"
    if shutil.which(cross) is None or shutil.which(qemu) is None:
        pytest.skip(f"there is no {cross} or no {qemu}")
    library, program = tmp_path / "opscope_native.so", tmp_path / "softmax"
    compiler = building.Compiler([cross])
    assert compiler.machine == "aarch64"
    building.build(compiler, library)
    assert building.platform_tag(library, compiler.machine) == "manylinux_2_17_aarch64"
    for unit in units.units():
        for processor in unit.processors("aarch64"):
            assert unit.marker(processor).encode() in library.read_bytes()
    source = tmp_path / "softmax.c"
    source.write_text(_SOFTMAX)
    compiler.run(str(source), "-o", str(program), "-ldl")
    command = [qemu, "-L", f"/usr/{cross.removesuffix('-gcc')}", program, library]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    kind, *found = done.stdout.split()
    assert int(kind) == 1
    wanted = right(np.arange(45, dtype=np.float32)[None] % 7)
    np.testing.assert_allclose([np.array(found, float)], wanted, rtol=1e-5)


def test_marks_of_units_differ() -> None:
    marks = [unit.marker(one) for unit in units.units() for one in unit.processors("x86_64")]
    assert len(marks) == len(set(marks))
    assert Unit("rows", "float").marker(units.PROCESSORS["x86_64"][1]) == "unit_rows_float_avx2"


def test_a_unit_that_does_not_compile_is_named(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(units, "KINDS", _FEW)
    found = building.find_compiler()
    assert found is not None
    found.objects = tmp_path / "objects"
    run = found.run

    def refusing(*arguments: str) -> str:
        wrong = any(one.endswith("rows.c") for one in arguments)
        return run(*arguments, *(["-std=no-such"] if wrong else []))

    monkeypatch.setattr(found, "run", refusing)
    with pytest.warns(UserWarning, match="lacks what did not compile") as caught:
        building.build(found, tmp_path / "opscope_native.so")
    told = str(caught[0].message).splitlines()[1:]
    unit = Unit("rows", "float")
    missing = sorted(unit.marker(one) for one in unit.processors())
    assert [line.split(":")[0].strip() for line in told] == missing
    assert all("error: " in line and "no-such" in line for line in told)
    assert (tmp_path / "opscope_native.so").exists()
