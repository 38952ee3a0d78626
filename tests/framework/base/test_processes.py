"""Processes of this machine: alive, and the same as before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from opscope.framework.base.machine.processes import birth, is_alive, wait_until_read

_NEVER = 2**31 - 2  # no process has such a number
_LONG = 120.0  # seconds, after which what should come at once does not come


def test_this_process() -> None:
    assert is_alive(os.getpid()) and birth(os.getpid())
    assert birth(os.getpid()) == birth(os.getpid())
    assert not is_alive(_NEVER) and birth(_NEVER) == ""


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="Linux tells of processes")
def test_a_process_that_has_ended_and_is_not_collected() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_alive(process.pid) and birth(process.pid) not in ("", birth(os.getpid()))
    process.kill()
    until = time.monotonic() + _LONG
    while is_alive(process.pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_alive(process.pid) and birth(process.pid) == ""
    process.communicate()
    assert not is_alive(process.pid) and birth(process.pid) == ""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what a pipe holds")
def test_what_was_written_is_waited_for_until_it_is_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"the last word")
    began = time.perf_counter()
    wait_until_read(writing, 0.1)
    assert time.perf_counter() - began >= 0.1
    waiting = threading.Thread(target=wait_until_read, args=(writing, 2 * _LONG))
    waiting.start()
    assert os.read(reading, 8) == b"the last"
    waiting.join(0.1)
    assert waiting.is_alive()
    assert os.read(reading, 8) == b" word"
    waiting.join(_LONG)
    assert not waiting.is_alive()
    os.write(writing, b"unread")
    os.close(reading)  # whoever should read it is gone
    began = time.perf_counter()
    wait_until_read(writing, 2 * _LONG)
    assert time.perf_counter() - began < _LONG
    os.close(writing)


def test_only_pipes_are_waited_for(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        file.write(b"of a launcher that reads no pipe")
        file.flush()
        began = time.perf_counter()
        wait_until_read(file.fileno(), 2 * _LONG)
    wait_until_read(-1, 2 * _LONG)  # nor what is closed
    assert time.perf_counter() - began < _LONG


_CHILD = """
import sys, time
from opscope.framework.base.machine.processes import ends_with_parent

if sys.argv[1] == "during":
    with ends_with_parent():
        print("ready", flush=True)
        time.sleep(1000)
with ends_with_parent():
    pass
print("ready", flush=True)
time.sleep(1000)
"""
_PARENT = """
import subprocess, sys, time

child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone ends children")
@pytest.mark.parametrize(("when", "ends"), [("during", True), ("after", False)])
def test_a_child_of_a_parent_that_is_killed(when: str, ends: bool) -> None:
    command = [sys.executable, "-c", _PARENT, _CHILD, when]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    until = time.monotonic() + (_LONG if ends else 0.3)
    while is_alive(child) and time.monotonic() < until:
        time.sleep(0.01)
    alive = is_alive(child)
    if alive:
        os.kill(child, signal.SIGKILL)
    assert alive is not ends
