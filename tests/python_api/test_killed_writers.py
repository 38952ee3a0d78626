"""Writers that are killed at any step: a reader finds the old files or the new ones, whole."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import FormatError, SaveError
from opscope.framework.base.files import leftovers
from opscope.framework.base.files.atomic import write_atomically
from opscope.kaldi.tables.tables import TableWriter, read_table

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills as Unix does")

_STEPS = 24  # more than there are
_KILLED = 9


def killed_at(step: int, work: Callable[[int], None]) -> bool:
    """Do some work in a child that ends before or behind the n-th change to a folder."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            left = [step]
            for name in ("replace", "fsync", "unlink"):
                setattr(os, name, _killing(getattr(os, name), left))
            work(2)
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, _KILLED)
    return status == _KILLED


def _killing(real: Any, left: list[int]) -> Any:
    def step(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os._exit(_KILLED)
        done = real(*args, **options)
        left[0] -= 1
        if left[0] == 0:
            os._exit(_KILLED)
        return done

    return step


def save(value: float) -> None:
    b, scope = NetBuilder("n"), Scope()
    b.mul(b.input("x", [-1, 2]), b.parameter("w", [2], "zeros"), name="y")
    b.initialize(scope)
    scope.var("w").bind(np.array([value, value], np.float32))
    opscope.save(b, scope, "net")


def write(value: float) -> None:
    """A table whose entries lie at other places for other values."""
    with TableWriter("ark,scp:t.ark,t.scp", "matrix") as table:
        for key in ("a", "b"):
            table.write(key, np.full((int(value) + (key == "b"), 2), value, np.float32))


def hidden() -> list[str]:
    return sorted(name for name in os.listdir() if name.startswith("."))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(leftovers, "_OFTEN", 0.0)


@pytest.mark.parametrize("first", [True, False])
def test_save(first: bool) -> None:
    seen = set()
    for step in range(1, _STEPS):
        for path in Path().iterdir():
            path.unlink()
        if not first:
            save(1)
        if not killed_at(step, save):
            break
        if first and not Path("net.pb").exists():
            seen.add(0)
        else:
            seen.add(opscope.load("net").scope.numpy("w")[0])
        save(3)
        assert opscope.load("net").scope.numpy("w")[0] == 3
        assert hidden() == []
    else:
        raise AssertionError("a save has more steps")
    assert step > 6 and seen == ({0, 2} if first else {1, 2})


def test_archive_and_script() -> None:
    seen = set()
    for step in range(1, _STEPS):
        for path in Path().iterdir():
            path.unlink()
        write(1)
        if not killed_at(step, write):
            break
        archive = dict(read_table("ark:t.ark", "matrix"))
        seen.add(archive["a"][0, 0])
        try:
            script = dict(read_table("scp:t.scp", "matrix"))
        except FormatError as error:
            assert "t.scp: No such file" in str(error)
            seen.add("none")
        else:
            assert script.keys() == archive.keys()
            assert all(np.array_equal(script[key], archive[key]) for key in script)
        write(3)
        assert hidden() == []
    else:
        raise AssertionError("a table has more steps")
    assert seen == {1, 2, "none"}


def test_a_script_file_of_another_archive_is_not_put_back(monkeypatch: Any) -> None:
    write(1)
    real = os.replace

    def replace(source: Any, target: Any) -> None:
        if str(target).endswith("t.scp"):
            raise OSError(errno.EROFS, "Read-only file system")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(SaveError, match=r"t\.scp: Read-only file system"):
            write(2)
    assert dict(read_table("ark:t.ark", "matrix"))["a"][0, 0] == 2
    assert not Path("t.scp").exists() and hidden() == []


def test_a_script_file_stays_where_its_archive_stays(monkeypatch: Any) -> None:
    write(1)
    before = Path("t.scp").read_bytes()
    with pytest.raises(FormatError, match="white space"):
        with TableWriter("ark,scp:t.ark,t.scp", "matrix") as table:
            table.write("a", np.zeros((9, 2)))
            table.write("a b", np.zeros((9, 2)))
    assert Path("t.scp").read_bytes() == before and hidden() == []


def test_a_save_into_a_folder_that_cannot_be_listed(monkeypatch: Any) -> None:
    def listdir(path: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", listdir)
    save(1)
    assert opscope.load("net").scope.numpy("w")[0] == 1


def test_what_somebody_is_writing_is_no_leftover() -> None:
    script = (
        "import sys; from opscope.framework.base.files.atomic import atomic_file\n"
        "with atomic_file('a') as file:\n"
        "    file.write(b'whole'); file.flush(); print('begun', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        assert len(hidden()) == 1
        write_atomically("b", b"")
        write_atomically("a", b"mine")
        assert len(hidden()) == 1
        process.communicate("")
    assert process.returncode == 0 and Path("a").read_bytes() == b"whole" and hidden() == []


def test_a_mark_that_is_no_mark_names_no_file() -> None:
    save(1)
    from opscope.framework.files.saved import MARK
    from opscope.proto.net_pb2 import NetDesc

    data = Path("net.pb").read_bytes()
    Path("net.pb").write_bytes(data + NetDesc(metadata={MARK: "../../x"}).SerializeToString())
    with pytest.raises(FormatError, match="belongs to another save"):
        opscope.load("net")
