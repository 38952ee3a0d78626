"""The one opener: what is no regular file is refused at once, with an error that names it."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

import opscope
from file_readers import READERS
from opscope.framework.base.errors import FormatError
from opscope.framework.base.untrusted import opener
from opscope.speech import read_audio

KINDS = {
    "pipe.pb": "pipe.pb: a pipe or a device, not a file",
    "/dev/zero": "/dev/zero: a pipe or a device, not a file",
    "folder.pb": "folder.pb.*: .*(a|is a) folder",
    "socket.pb": "socket.pb: a socket, not a file",
    "a\0b": "is no file name: it holds a NUL",
    "a\ud800": "is no file name: it cannot be encoded",
}
NAMES = {"nnet3 rxfilename", "nnet3 listed", "nnet3 place", "nnet3 stream", "cntk config"}
"""Those that take more than a path: `-`, commands, several files."""
TAKE_PIPES = {*NAMES, "nnet3 window", "nnet3 config", "nnet3 xconfig"} - {"nnet3 listed"}
"""Those whose paths are typed: a shell's `<(...)` is one."""
BY_ENDING = {"net", "parameters"}
"""Those that first look at how the path ends."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPSCOPE_ROOT", raising=False)
    os.mkfifo("pipe.pb")
    os.mkdir("folder.pb")
    Path("file.pb").write_bytes(b"\0\1nothing")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket.pb")
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", sorted({*READERS} - {"nnet3 there"}))
def test_readers_read_regular_files(files, reader, kind):
    if reader in TAKE_PIPES and kind in ("pipe.pb", "/dev/zero"):
        return
    told = None if reader in BY_ENDING else KINDS[kind]
    with pytest.raises(FormatError, match=told):
        READERS[reader](kind)


@pytest.mark.parametrize("reader", sorted({*READERS} - NAMES))
def test_paths_are_text_or_path_objects(files, reader):
    """What a reader says of a file does not depend on how its path was given."""
    told = []
    for path in ("file.pb", Path("file.pb")):
        try:
            told.append(str(READERS[reader](path))[:20])
        except (opscope.OpscopeError, AttributeError) as error:
            told.append(str(error))  # AttributeError: of an empty Hmms
    assert told[0] == told[1]
    with pytest.raises(opscope.OpscopeError, match="7"):
        READERS[reader](7)


def test_pipes_where_they_are_taken(files):
    for read in (lambda path: opener.read_file(path, pipes=True), READERS["nnet3 config"]):
        writer = threading.Thread(target=lambda: Path("pipe.pb").write_bytes(b"# none\n"))
        writer.start()
        assert read("pipe.pb") in (b"# none\n", "# none\n")
        writer.join()
    writer = threading.Thread(target=lambda: Path("pipe.pb").write_bytes(b"RIFX"))
    writer.start()
    with pytest.raises(FormatError, match="pipe.pb: "):
        read_audio("pipe.pb")
    writer.join()


def test_errors_name_the_place_where_a_name_stands(files):
    for name, told in (("pipe.pb", "a pipe or"), ("gone", "No such file"), ("a\0b", "a NUL")):
        with pytest.raises(FormatError, match=f"^list.scp:3: .*{told}"):
            opener.open_file(name, place="list.scp:3")
    with (
        opscope.confined("folder.pb"),
        pytest.raises(opscope.OutsideError, match="^list.scp:3: 'fi"),
    ):
        opener.open_file("file.pb", place="list.scp:3")


def test_a_pipe_that_takes_the_place_of_a_file(files, monkeypatch):
    """What was opened is judged, not what was there before."""
    true = os.open

    def swap(path, flags, *mode):
        os.replace("pipe.pb", "file.pb")
        return true(path, flags, *mode)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(FormatError, match="file.pb: a pipe or a device"):
        opener.open_file("file.pb")


def test_text_that_is_none(files):
    Path("text").write_bytes(b"a\r\nb\xff")
    with pytest.raises(FormatError, match=r"^text: no text in UTF-8 \(byte 4\)"):
        opener.read_text("text")
    assert opener.read_text("text", "surrogateescape") == "a\nb\udcff"
