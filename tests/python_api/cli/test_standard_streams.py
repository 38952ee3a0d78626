"""The command line with standard streams that are closed, full, gone, or a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kaldi_models import write_models

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="closes streams as a shell does")

_RUN = [sys.executable, "-P", "-m", "opscope"]
WRITING = {
    "help": ["--help"],
    "help of a program": ["nnet3-info", "--help"],
    "ops": ["ops"],
    "info": ["nnet3-info", "net.raw"],
    "show": ["show", "net.raw"],
    "text": ["nnet3-copy", "--binary=false", "net.raw", "-"],
    "binary": ["nnet3-copy", "net.raw", "-"],
}


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_models()


def shell(words: list[str], streams: str) -> subprocess.CompletedProcess[str]:
    command = f'exec "$@" {streams}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", *_RUN, *words], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    return done


@pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)
@pytest.mark.parametrize(
    ("streams", "told"), [(">/dev/full", "No space left"), (">&-", "Bad file descriptor")]
)
def test_output_that_cannot_be_written_is_an_error(
    words: list[str], streams: str, told: str
) -> None:
    done = shell(words, streams)
    assert done.returncode == 1
    assert sum(told in line for line in done.stderr.splitlines()) == 1


def test_closed_output_is_no_matter_to_what_does_not_use_it() -> None:
    assert shell(["nnet3-copy", "net.raw", "out.raw"], ">&-").returncode == 0
    # Its log would go into the file, were the number of the closed stream free.
    assert shell(["nnet3-copy", "net.raw", "out2.raw"], "<&- >&- 2>&-").returncode == 1
    assert not Path("out2.raw").exists() or _same("out.raw", "out2.raw")


def _same(one: str, other: str) -> bool:
    return Path(one).read_bytes() == Path(other).read_bytes()


def test_closed_input_is_an_error() -> None:
    done = shell(["nnet3-info", "-"], "<&-")
    assert done.returncode == 1 and "Bad file descriptor" in done.stderr


def test_error_that_nobody_can_read_still_has_its_code() -> None:
    for streams in ("2>&-", "2>/dev/full"):
        assert shell(["nnet3-info", "nowhere.raw"], streams).returncode == 1


def test_reader_that_goes_away_gets_no_line() -> None:
    with subprocess.Popen(
        [*_RUN, "ops"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        told = process.stderr.read()
    assert process.returncode == 1 and told == ""


def test_a_terminal_gets_no_commands_from_files() -> None:
    text = Path("net.txt")
    shell(["nnet3-copy", "--binary=false", "net.raw", str(text)], "")
    name = b"input-node name=input"
    evil = text.read_bytes().replace(name, b"input-node name=in\x1b[31mput")
    assert evil != text.read_bytes()
    text.write_bytes(evil)
    leader, follower = os.openpty()
    try:
        subprocess.run(
            [*_RUN, "nnet3-info", str(text)], stdout=follower, stderr=follower, check=False
        )
        os.close(follower)
        seen = b""
        while piece := _read(leader):
            seen += piece
    finally:
        os.close(leader)
    assert b"\x1b" not in seen and b"\\x1b" in seen


def test_a_stream_that_knows_few_characters() -> None:
    name = "あ\udce4.raw"
    os.rename("net.raw", name)
    done = subprocess.run(
        [*_RUN, "open", name],
        env={**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "1"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0 and b"file         \\u3042\xe4.raw" in done.stdout


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # nobody writes to it any more
        return b""
