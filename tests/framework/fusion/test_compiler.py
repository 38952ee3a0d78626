"""The compiler of fused loops: its cache, and that everything runs without it."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.framework.fusion import chains
from opscope.framework.fusion.compiled import compiler, libraries, library_files
from opscope.framework.fusion.scalars.codegen import FULL, Loop, Operand
from opscope.framework.fusion.scalars.expression import parse
from scalar_loops import task_of_loop

pytestmark = pytest.mark.skipif(
    not compiler.available() or sys.platform == "win32", reason="there is no C compiler"
)

_WORK = """
import os
import numpy as np
from opscope.framework.fusion import chains, team
from opscope.framework.fusion.compiled import compiler
from opscope.framework.fusion.scalars.codegen import FULL, Loop, Operand
from opscope.framework.fusion.scalars.expression import parse
loop = Loop("float32", (Operand(FULL, "float32"),), (parse("x0 * 3"),), ((0, "v0"),))
x = np.ones(8, np.float32)
program = chains.program(loop)
os.environ["OPSCOPE_CC"] = os.environ.get("COMPILER", "")  # of loops alone
assert compiler.compile_loop(program)
block = chains.argument(program, (1, 8), [(x, 8)])
chains.task(loop, block)()
assert (x == 3).all()
"""


def loop(text: str) -> Loop:
    return Loop("float32", (Operand(FULL, "float32"),), (parse(text),), ((0, "v0"),))


def program_of(made: Loop) -> chains.Program:
    program = chains.program(made)
    assert program is not None
    return program


def apply(made: Loop, x: np.ndarray) -> np.ndarray:
    assert compiler.compile_loop(program_of(made))
    task_of_loop(made, [x])()
    return x


@pytest.fixture(autouse=True)
def fresh(monkeypatch: Any, tmp_path: Path) -> Iterator[Path]:
    """A process that has compiled nothing yet, with a cache folder of its own."""
    monkeypatch.setattr(compiler, "_functions", {})
    monkeypatch.setattr(compiler, "_refused", set())
    monkeypatch.setattr(compiler, "_broken", set())
    folder = tmp_path / "cache"
    monkeypatch.setenv("OPSCOPE_CACHE", str(folder))
    yield folder


@pytest.fixture
def compiler_runs(monkeypatch: Any) -> list[list[str]]:
    runs = []
    real = subprocess.Popen

    def popen(command: Any, **options: Any) -> Any:
        runs.append(command)
        return real(command, **options)

    monkeypatch.setattr(libraries.subprocess, "Popen", popen)
    return runs


def test_cache(fresh: Path, compiler_runs: list, monkeypatch: Any) -> None:
    for _ in range(2):
        monkeypatch.setattr(compiler, "_functions", {})
        assert (apply(loop("x0 + 1"), np.ones(5, np.float32)) == 2).all()
    assert len(compiler_runs) == 1
    assert sorted(path.suffix for path in fresh.iterdir()) == [".sha256", ".so"]
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o700


def test_old_files_are_dropped(fresh: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(library_files, "_MOST_FILES", 3)
    made = loop("x0 + 0.1")
    apply(made, np.ones(5, np.float32))
    (oldest,) = fresh.glob("*.so")
    for number in range(3):
        for path in fresh.iterdir():
            os.utime(path, (1000, path.stat().st_mtime - 100))
        library_files.put(fresh, f"other{number}", b"another library")
    others = [f"other{number}" for number in range(3)]
    for suffix in (".so", ".sha256"):
        assert sorted(path.stem for path in fresh.glob(f"*{suffix}")) == others
    assert oldest.stem not in others
    assert (apply(made, np.ones(5, np.float32)) == np.float32(1.1)).all()  # it stays loaded


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4000])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def another_library(path: Path) -> None:
    """A library without the functions, with the right sum: as if two keys were one."""
    made = path.with_name("other.so")
    subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", made], input=b"int other;", check=True)
    library_files.put(path.parent, path.stem, made.read_bytes())
    made.unlink()


def open_to_all(path: Path) -> None:
    path.chmod(0o777)


def link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere.so")
    path.symlink_to(path.parent.parent / "elsewhere.so")


def lose_sum(path: Path) -> None:
    path.with_suffix(".sha256").unlink()


def change_sum(path: Path) -> None:
    path.with_suffix(".sha256").write_bytes(b"\xff" * 64)


DAMAGES = (cut, zero, another_library, open_to_all, link, lose_sum, change_sum)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache folder of a process that has compiled the loop of `_WORK`."""
    folder = tmp_path_factory.mktemp("written") / "cache"
    env = {**os.environ, "OPSCOPE_CACHE": str(folder)}
    subprocess.run([sys.executable, "-c", _WORK], env=env, check=True)
    return folder


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_library_that_is_not_as_it_was_written_is_made_again(
    damage: Any, written: Path, fresh: Path, tmp_path: Path
) -> None:
    shutil.copytree(written, fresh)
    (path,) = fresh.glob("*.so")
    whole = path.read_bytes()
    damage(path)
    # In a process of its own, which a library without its end could kill.
    env = {**os.environ, "OPSCOPE_CACHE": str(fresh)}
    subprocess.run([sys.executable, "-c", _WORK], env=env, check=True)
    assert path.read_bytes() == whole and not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    elsewhere = tmp_path / "elsewhere.so"
    assert not elsewhere.exists() or elsewhere.read_bytes() == whole


def test_what_killed_compilers_left_is_removed(fresh: Path) -> None:
    compiler.compile_loop(program_of(loop("x0 + 8")))
    old, new = fresh / ".a.so.0123456789ab.tmp", fresh / ".b.so.0123456789ab.tmp"
    for path in (old, new):
        path.touch()
    os.utime(old, (1000, 1000))
    compiler.compile_loop(program_of(loop("x0 + 9")))
    assert new.exists() and not old.exists()


def _open(folder: Path) -> None:
    folder.chmod(0o777)


def _open_around(folder: Path) -> None:
    folder.parent.chmod(0o777)


def _linked(folder: Path) -> None:
    folder.rename(folder.with_name("real"))
    folder.symlink_to(folder.with_name("real"))


def _of_another(folder: Path) -> None:
    os.chown(folder, 12345, 12345)


def _in_one_of_another(folder: Path) -> None:
    os.chown(folder.parent, 12345, 12345)


def _sticky(folder: Path) -> None:
    folder.parent.chmod(0o1777)


FOLDERS = (_open, _open_around, _linked, _of_another, _in_one_of_another)


@pytest.mark.parametrize("how", FOLDERS, ids=lambda how: how.__name__)
def test_folder_that_is_open_to_others_is_not_trusted(how: Any, fresh: Path, caplog: Any) -> None:
    if "another" in how.__name__ and os.getuid() != 0:
        pytest.skip("only the system's owner gives files away")
    fresh.mkdir()
    how(fresh)
    library_files._refused.cache_clear()
    try:
        assert library_files.cache_folder() is None
        assert "not used" in caplog.text
        assert (apply(loop("x0 + 5"), np.ones(5, np.float32)) == 6).all()
        assert list(fresh.iterdir()) == []
    finally:
        fresh.parent.chmod(0o700)


def test_folder_in_one_for_all_with_the_sticky_bit_is_ours(fresh: Path) -> None:
    fresh.mkdir(mode=0o700)
    _sticky(fresh)
    assert library_files.cache_folder() == fresh


@pytest.mark.parametrize("name", ["OPSCOPE_CACHE", "XDG_CACHE_HOME", "HOME"])
def test_relative_folder_is_refused(
    name: str, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    for other in ("OPSCOPE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "here")
    monkeypatch.chdir(tmp_path)
    library_files._refused.cache_clear()
    assert library_files.cache_folder() is None
    assert "absolute path" in caplog.text and not list(tmp_path.iterdir())


def test_folder_that_cannot_be_had(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "file" / "below"))
    assert library_files.cache_folder() is None
    assert (apply(loop("x0 + 6"), np.ones(5, np.float32)) == 7).all()


def test_full_folder(fresh: Path, monkeypatch: Any) -> None:
    def put(*_: Any) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(library_files, "put", put)
    assert (apply(loop("x0 + 7"), np.ones(5, np.float32)) == 8).all()


def test_compiler_that_fails(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    broken = tmp_path / "broken-cc"
    broken.write_text("#!/bin/sh\necho no luck >&2\nexit 1\n")
    broken.chmod(0o755)
    programs = [program_of(loop(f"x0 + {number}")) for number in (1, 2)]
    monkeypatch.setenv("OPSCOPE_CC", str(broken))
    assert not compiler.compile_loop(programs[0])
    assert "no luck" in caplog.text
    assert not compiler.available()
    caplog.clear()
    assert not compiler.compile_loop(programs[1])
    assert not caplog.records


def test_compiler_that_writes_a_part(fresh: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """In a process of its own, which a library without its end could kill."""
    broken = tmp_path / "broken-cc"
    broken.write_text(
        f"#!{sys.executable}\nimport os, subprocess, sys\n"
        "subprocess.run(['cc', *sys.argv[1:]], check=True)\n"
        "path = sys.argv[sys.argv.index('-o') + 1]\nos.truncate(path, os.stat(path).st_size - 1)\n"
    )
    broken.chmod(0o755)
    env = {**os.environ, "OPSCOPE_CACHE": str(fresh), "COMPILER": str(broken)}
    done = subprocess.run([sys.executable, "-c", _WORK], env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "bytes of a library that has more" in done.stderr
    assert list(fresh.glob("*")) == []


def test_two_processes_and_two_threads(fresh: Path) -> None:
    env = {**os.environ, "OPSCOPE_CACHE": str(fresh)}
    running = [subprocess.Popen([sys.executable, "-c", _WORK], env=env) for _ in range(2)]
    failed = []

    def work() -> None:
        try:
            assert (apply(loop("x0 * 5"), np.ones(8, np.float32)) == 5).all()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert [process.wait(200) for process in running] == [0, 0]
    assert {path.suffix for path in fresh.iterdir()} == {".so", ".sha256"}


def test_large_loops_use_threads_and_survive_a_fork() -> None:
    made = loop("x0 * 7")
    assert (apply(made, np.ones(4_000_003, np.float32)) == 7).all()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if (apply(made, np.ones(4_000_003, np.float32)) == 7).all() else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_unknown_compiler(monkeypatch: Any, caplog: Any) -> None:
    program = program_of(loop("x0 + 1"))
    monkeypatch.setenv("OPSCOPE_CC", "no-such-compiler-at-all")
    assert not compiler.available()
    assert "no-such-compiler-at-all" in caplog.text
    assert not compiler.compile_loop(program)


def test_no_compiler_by_its_switch(monkeypatch: Any, caplog: Any) -> None:
    program = program_of(loop("x0 + 1"))
    monkeypatch.setenv("OPSCOPE_CC", "none")
    assert not compiler.available() and not compiler.compile_loop(program)
    assert not caplog.records


@pytest.mark.skipif(platform.machine() != "x86_64", reason="kinds of x86-64")
def test_instructions_by_their_switch(fresh: Path, compiler_runs: list, monkeypatch: Any) -> None:
    """Loops are compiled for the kind of processor that is asked for."""
    for kind, level in (("sse4", "x86-64-v2"), ("avx2", "x86-64-v3"), ("best", "native")):
        monkeypatch.setattr(compiler, "_functions", {})
        monkeypatch.setenv("OPSCOPE_CPU", kind)
        assert (apply(loop("x0 + 9"), np.ones(5, np.float32)) == 10).all()
        assert f"-march={level}" in compiler_runs[-1]
