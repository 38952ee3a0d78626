"""Copies between files: by the system, or through this process where it cannot."""

from __future__ import annotations

import errno
import io
import os
import threading

import pytest

from opscope.framework.base.files.copying import copy_contents

DATA = bytes(range(256)) * 9000


def copied(source, target):
    with open(source, "rb") as file, open(target, "wb") as out:
        out.write(b"head")
        file.read(3)
        copy_contents(file, out)
        assert file.tell() == len(DATA) and out.tell() == len(DATA) + 1
        out.write(b"tail")
    return target.read_bytes()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "from"
    path.write_bytes(DATA)
    return path


def test_behind_what_is_there(source, tmp_path):
    assert copied(source, tmp_path / "to") == b"head" + DATA[3:] + b"tail"


def test_a_system_that_cannot_or_stops_half_way(source, tmp_path, monkeypatch):
    real = getattr(os, "copy_file_range", None)
    calls = []

    def stops(a, b, count, **options):
        calls.append(count)
        if len(calls) > 1 or real is None:
            raise OSError(errno.EXDEV, "other file systems")
        return real(a, b, 1000, **options)

    monkeypatch.setattr(os, "copy_file_range", stops, raising=False)
    assert copied(source, tmp_path / "to") == b"head" + DATA[3:] + b"tail"
    assert len(calls) == (1 if real is None else 2)
    monkeypatch.delattr(os, "copy_file_range")
    assert copied(source, tmp_path / "to") == b"head" + DATA[3:] + b"tail"


def test_into_a_pipe_and_memory(source):
    read, write = os.pipe()
    got = []
    reader = threading.Thread(target=lambda: got.append(os.fdopen(read, "rb").read()))
    reader.start()
    with open(source, "rb") as file, os.fdopen(write, "wb") as out:
        copy_contents(file, out)
    reader.join()
    assert got == [DATA]
    memory = io.BytesIO()
    copy_contents(io.BytesIO(DATA), memory)
    assert memory.getvalue() == DATA
