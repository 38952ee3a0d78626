"""The compiler of fused loops: its cache, and that everything runs without it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.framework.fusion import compiler
from opscope.framework.fusion.codegen import FULL, Loop, Operand
from opscope.framework.fusion.expression import parse

pytestmark = pytest.mark.skipif(
    not compiler.available() or sys.platform == "win32", reason="there is no C compiler"
)

_WORK = """
import numpy as np
from opscope.framework.fusion import compiler
from opscope.framework.fusion.codegen import FULL, Loop, Operand
from opscope.framework.fusion.expression import parse
loop = Loop("float32", (Operand(FULL, "float32"),), (parse("x0 * 3"),), ((0, "v0"),))
x = np.ones(8, np.float32)
compiler.functions([loop])[0][0](np.array([1, 8, x.ctypes.data, 8]).ctypes.data)
assert (x == 3).all()
"""


def loop(text: str) -> Loop:
    return Loop("float32", (Operand(FULL, "float32"),), (parse(text),), ((0, "v0"),))


def apply(made: Loop, x: np.ndarray) -> np.ndarray:
    found = compiler.functions([made])
    assert found is not None
    words = np.array([1, x.size, x.ctypes.data, x.size])
    found[0][0](words.ctypes.data)
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
    real = subprocess.run

    def run(command: Any, **options: Any) -> Any:
        runs.append(command)
        return real(command, **options)

    monkeypatch.setattr(compiler.subprocess, "run", run)
    return runs


def test_cache(fresh: Path, compiler_runs: list, monkeypatch: Any) -> None:
    for _ in range(2):
        monkeypatch.setattr(compiler, "_functions", {})
        assert (apply(loop("x0 + 1"), np.ones(5, np.float32)) == 2).all()
    assert len(compiler_runs) == 1
    assert [path.suffix for path in fresh.iterdir()] == [".so"]
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o700


def test_loops_of_a_plan_are_compiled_together(compiler_runs: list) -> None:
    assert compiler.compile_loops([loop("x0 + 1"), loop("x0 + 2"), loop("x0 + 1")])
    assert len(compiler_runs) == 1 and len(compiler._functions) == 2


def test_old_files_are_dropped(fresh: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(compiler, "_MOST_FILES", 3)
    for number in range(4):
        apply(loop(f"x0 + 0.{number + 1}"), np.ones(5, np.float32))
        for path in fresh.iterdir():
            os.utime(path, (1000, path.stat().st_mtime - 100))
    assert len(list(fresh.iterdir())) == 2
    assert (apply(loop("x0 + 0.1"), np.ones(5, np.float32)) == np.float32(1.1)).all()


def test_damaged_file_is_made_again(fresh: Path, compiler_runs: list, monkeypatch: Any) -> None:
    compiler.compile_loops([loop("x0 + 4")])
    (path,) = fresh.iterdir()
    other = fresh.with_name("other")
    other.mkdir(mode=0o700)
    (other / path.name).write_bytes(b"no library")
    monkeypatch.setenv("OPSCOPE_CACHE", str(other))
    monkeypatch.setattr(compiler, "_functions", {})
    assert (apply(loop("x0 + 4"), np.ones(5, np.float32)) == 5).all()
    assert len(compiler_runs) == 2


def test_folder_that_is_open_to_others_is_not_trusted(fresh: Path) -> None:
    fresh.mkdir()
    fresh.chmod(0o777)
    assert compiler.cache_folder() is None
    assert (apply(loop("x0 + 5"), np.ones(5, np.float32)) == 6).all()
    assert list(fresh.iterdir()) == []


def test_folder_that_cannot_be_had(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OPSCOPE_CACHE", str(tmp_path / "file" / "below"))
    assert compiler.cache_folder() is None
    assert (apply(loop("x0 + 6"), np.ones(5, np.float32)) == 7).all()


def test_full_folder(fresh: Path, monkeypatch: Any) -> None:
    real = compiler.tempfile.mkstemp

    def mkstemp(**options: Any) -> Any:
        if options["dir"] == fresh:
            raise OSError(28, "No space left on device")
        return real(**options)

    monkeypatch.setattr(compiler.tempfile, "mkstemp", mkstemp)
    assert (apply(loop("x0 + 7"), np.ones(5, np.float32)) == 8).all()


def test_compiler_that_fails(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    broken = tmp_path / "broken-cc"
    broken.write_text("#!/bin/sh\necho no luck >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("OPSCOPE_CC", str(broken))
    assert compiler.functions([loop("x0 + 1")]) is None
    assert "no luck" in caplog.text
    assert not compiler.available()
    caplog.clear()
    assert compiler.functions([loop("x0 + 2")]) is None
    assert not caplog.records


def test_one_bad_loop_does_not_spoil_the_others(monkeypatch: Any) -> None:
    bad = Loop("float32", (Operand(FULL, "float32"),), (("var", "nowhere"),), ((0, "v0"),))
    assert not compiler.compile_loops([loop("x0 + 1"), bad])
    assert compiler.functions([bad]) is None
    assert (apply(loop("x0 + 1"), np.ones(5, np.float32)) == 2).all()
    assert compiler.available()


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
    assert [process.wait(60) for process in running] == [0, 0]
    assert all(path.suffix == ".so" for path in fresh.iterdir())


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


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY", ""])
def test_the_environment_is_left_as_it_was(name: str, monkeypatch: Any) -> None:
    for other in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(other, raising=False)
    if name:
        monkeypatch.setenv(name, "7")
    seen, before = [], dict(os.environ)
    monkeypatch.setattr(compiler.ctypes, "CDLL", lambda *_: seen.append(dict(os.environ)))
    compiler.load_openmp.__wrapped__()
    assert dict(os.environ) == before
    if seen:
        assert ("GOMP_SPINCOUNT" in seen[0]) is (name != "OMP_WAIT_POLICY")
        assert not name or seen[0][name] == "7"


def test_unknown_compiler(monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setenv("OPSCOPE_CC", "no-such-compiler-at-all")
    assert not compiler.available()
    assert "no-such-compiler-at-all" in caplog.text
    assert compiler.functions([loop("x0 + 1")]) is None
