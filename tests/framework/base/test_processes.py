"""Processes of this machine: alive, and the same as before."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from opscope.framework.base.processes import birth, is_alive

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
