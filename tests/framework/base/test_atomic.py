"""Atomic writing: the old file or the new, never a part; every failure names the path."""

from __future__ import annotations

import errno
import os
import signal
import stat
import threading

import pytest

from opscope.framework.base.errors import SaveError
from opscope.framework.base.files import atomic
from opscope.framework.base.files.atomic import (
    atomic_file,
    check_writable,
    write_atomically,
    write_together,
)


def files_in(folder):
    return sorted(os.listdir(folder))


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "a"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert files_in(tmp_path) == ["a"]


def test_keeps_permissions_and_honors_the_umask(tmp_path):
    path = tmp_path / "a"
    before = os.umask(0o027)
    try:
        write_atomically(path, b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o600)
    write_atomically(path, b"2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_follows_links(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "real").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_an_error_in_the_block_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert files_in(tmp_path) == ["a"]


def test_missing_folder(tmp_path):
    path = tmp_path / "none" / "a"
    for act in (lambda: write_atomically(path, b""), lambda: check_writable(path)):
        with pytest.raises(SaveError, match=f"cannot write {path}: there is no folder"):
            act()


def test_target_is_a_folder(tmp_path):
    with pytest.raises(SaveError, match="it is a folder"):
        write_atomically(tmp_path, b"")


def test_folder_without_permission(tmp_path, monkeypatch):
    def refuse(*args):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(atomic.os, "open", refuse)
    with pytest.raises(SaveError, match=f"cannot write {tmp_path / 'a'}: Permission denied"):
        check_writable(tmp_path / "a")


def test_check_writable_leaves_nothing(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    check_writable(tmp_path / "a")
    check_writable(tmp_path / "b")
    assert files_in(tmp_path) == ["a"]


def test_full_disk(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a"
    path.write_bytes(b"old")
    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(SaveError, match=f"cannot write {path}: No space left on device"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert files_in(tmp_path) == ["a"]


def test_file_too_large(tmp_path):
    """A real refusal by the system, in the middle of writing."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "a"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(SaveError, match=f"cannot write {path}: File too large"):
            write_atomically(path, b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_bytes() == b"old"
    assert files_in(tmp_path) == ["a"]


def both(folder, content):
    return [(folder / name, lambda file: file.write(content)) for name in ("a", "b")]


def test_together(tmp_path):
    write_together(both(tmp_path, b"1"))
    write_together(both(tmp_path, b"2"))
    assert {(tmp_path / name).read_bytes() for name in files_in(tmp_path)} == {b"2"}
    assert files_in(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("existing", [True, False])
def test_together_when_the_second_rename_fails(tmp_path, monkeypatch, existing):
    if existing:
        write_together(both(tmp_path, b"1"))
    replace = os.replace

    def failing(source, target):
        if target.endswith("b") and source.endswith(".tmp"):
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(atomic.os, "replace", failing)
    with pytest.raises(SaveError, match="Input/output error"):
        write_together(both(tmp_path, b"2"))
    if existing:
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"1"
    assert files_in(tmp_path) == (["a", "b"] if existing else [])


def test_together_without_hard_links(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.EPERM, "Operation not permitted")

    write_together(both(tmp_path, b"1"))
    monkeypatch.setattr(atomic.os, "link", refuse)
    write_together(both(tmp_path, b"2"))
    assert (tmp_path / "a").read_bytes() == b"2"
    assert files_in(tmp_path) == ["a", "b"]


def test_together_when_a_writer_fails(tmp_path):
    write_together(both(tmp_path, b"1"))

    def fail(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SaveError, match=f"cannot write {tmp_path / 'b'}: No space"):
        write_together([(tmp_path / "a", lambda file: file.write(b"2")), (tmp_path / "b", fail)])
    assert (tmp_path / "a").read_bytes() == b"1"
    assert files_in(tmp_path) == ["a", "b"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_written_and_not_replaced(tmp_path):
    """As a device is: who may, would replace /dev/null by a file."""
    pipe, beside = tmp_path / "pipe", tmp_path / "beside"
    os.mkfifo(pipe)
    read: list[bytes] = []
    for write in (
        lambda: write_atomically(pipe, b"data"),
        lambda: write_together([(pipe, lambda f: f.write(b"data")), (beside, _nothing)]),
    ):
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
        reader.start()
        write()
        reader.join(120)
        assert pipe.is_fifo() and read.pop() == b"data"
    check_writable(pipe)
    assert pipe.is_fifo() and sorted(tmp_path.iterdir()) == [beside, pipe]


def _nothing(file):
    file.write(b"")


def test_names_that_no_file_has(tmp_path):
    """Of other files the same is a FormatError: see `file_path`."""
    for name in ("a\0b", "a\udfff\ud800"):
        with pytest.raises(SaveError, match="cannot write: .* is no file name"):
            write_atomically(f"{tmp_path}/{name}", b"")
    assert not files_in(tmp_path)


def test_a_target_is_looked_at_once(tmp_path, monkeypatch):
    path, seen, true = str(tmp_path / "a"), [], os.stat

    def count(name, *args, **options):
        seen.append(name)
        return true(name, *args, **options)

    monkeypatch.setattr(os, "stat", count)
    write_atomically(path, b"1")
    assert seen.count(path) == 2  # what it is, and its permissions
