"""Processes of this machine: alive, and the same as before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from opscope.framework.base.machine.processes import birth, is_alive

_NEVER = 2**31 - 2  # no process has such a number


def test_this_process() -> None:
    assert is_alive(os.getpid()) and birth(os.getpid())
    assert birth(os.getpid()) == birth(os.getpid())
    assert not is_alive(_NEVER) and birth(_NEVER) == ""


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="Linux tells of processes")
def test_a_process_that_has_ended_and_is_not_collected() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_alive(process.pid) and birth(process.pid) not in ("", birth(os.getpid()))
    process.kill()
    until = time.monotonic() + 20
    while is_alive(process.pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_alive(process.pid) and birth(process.pid) == ""
    process.communicate()
    assert not is_alive(process.pid) and birth(process.pid) == ""


_CHILD = """
import sys, time
from opscope.framework.base.machine.processes import ends_with_parent

if sys.argv[1] == "during":
    with ends_with_parent():
        print("ready", flush=True)
        time.sleep(60)
with ends_with_parent():
    pass
print("ready", flush=True)
time.sleep(60)
"""
_PARENT = """
import subprocess, sys, time

child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone ends children")
@pytest.mark.parametrize(("when", "ends"), [("during", True), ("after", False)])
def test_a_child_of_a_parent_that_is_killed(when: str, ends: bool) -> None:
    command = [sys.executable, "-c", _PARENT, _CHILD, when]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    until = time.monotonic() + (20 if ends else 0.3)
    while is_alive(child) and time.monotonic() < until:
        time.sleep(0.01)
    alive = is_alive(child)
    if alive:
        os.kill(child, signal.SIGKILL)
    assert alive is not ends
