"""Properties and locks after a fork, while another thread holds what the child needs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import opscope
from house import FLOORS
from opscope.framework.base.python.cached import (
    cached_property,
    new_lock,
    new_rlock,
    new_waiting_rlock,
)

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks as Unix does")
_LONG = 120.0  # seconds
_CLOSED = (
    r"functools import .*cached_property",
    r"functools\.cached_property",
    r"threading\.R?Lock\(",
)


def in_child(work: Callable[[], object]) -> int | None:
    """Exit code of a child that does some work; None where it hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + _LONG
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


class Slow:
    def __init__(self, go_on: threading.Event | None = None) -> None:
        self.begun, self.go_on, self.times = threading.Event(), go_on, 0

    @cached_property
    def value(self) -> int:
        """A value."""
        self.begun.set()
        self.times += 1
        if self.go_on is not None:
            self.go_on.wait()
        return 7


def test_a_property_is_computed_once() -> None:
    one = Slow()
    assert (one.value, one.value, one.times) == (7, 7, 1)
    assert Slow.value.__doc__ == "A value."
    with pytest.raises(AttributeError):
        _ = Slow().nothing  # type: ignore[attr-defined]


@needs_fork
def test_a_fork_while_another_thread_computes_a_property() -> None:
    go_on = threading.Event()
    slow = Slow(go_on)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    try:
        slow.begun.wait()
        assert in_child(lambda: Slow().value) == 0
    finally:
        go_on.set()
        thread.join()


@needs_fork
@pytest.mark.parametrize("make", [new_lock, new_rlock])
def test_a_fork_while_another_thread_holds_a_lock(make: Callable[[], threading.Lock]) -> None:
    lock, held, go_on = make(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            go_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        held.wait()
        assert in_child(lock.acquire) == 0
        assert not lock.acquire(blocking=False)  # here it is still held
    finally:
        go_on.set()
        thread.join()


@needs_fork
def test_a_fork_waits_for_what_must_not_be_half_done() -> None:
    lock, begun, state = new_waiting_rlock(), threading.Event(), ["no"]

    def work() -> None:
        with lock:
            state[0] = "half"
            begun.set()
            time.sleep(0.2)
            state[0] = "done"

    def check() -> None:
        with lock:
            assert state == ["done"]

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    assert in_child(check) == 0
    thread.join()
    with lock:  # and it is open here as well
        pass


@needs_fork
def test_a_fork_while_another_thread_loads_the_operators() -> None:
    script = (
        "import os, sys, threading\n"
        "import opscope.framework.ir.registry as registry\n"
        "real, begun = registry.importlib.import_module, threading.Event()\n"
        "def load(*words):\n"
        "    begun.set()\n"
        "    return real(*words)\n"
        "registry.importlib.import_module = load\n"
        "threading.Thread(target=registry.load_operators).start()\n"
        "begun.wait()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(registry.lookup('matmul').type != 'matmul')\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True, timeout=60)


def test_nothing_holds_a_lock_that_a_fork_leaves_closed() -> None:
    folder = Path(opscope.__file__).parent
    found = [
        str(path.relative_to(folder))
        for floor in FLOORS
        for path in (folder / floor).rglob("*.py")
        if re.search("|".join(_CLOSED), path.read_text(encoding="utf-8"))
    ]
    assert found == [str(Path("framework", "base", "python", "cached.py"))]
