"""Processes of this machine: whether one runs, when it began, with whom it ends, and whether what
it wrote has been read."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

_SET_PARENT_DEATH_SIGNAL = 1  # of prctl


def is_alive(process: int) -> bool:
    """Whether a process of this machine runs; one that has ended and is not collected does not."""
    try:
        # A zombie answers signal 0 as if it ran.
        return _stat(process)[0] not in "ZX"
    except OSError:
        if os.name != "posix":
            return True  # there a signal 0 would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def birth(process: int) -> str:
    """When a process began, as the system writes it; empty where there is none. A number is given
    to another process some day, with another beginning."""
    try:
        fields = _stat(process)
        return "" if fields[0] == "Z" else fields[19]
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return ""
    except (OSError, IndexError):
        return ""
    with contextlib.suppress(OSError):
        done = subprocess.run(["ps", "-o", "lstart=", "-p", str(process)], capture_output=True)
        return "_".join(done.stdout.decode().split())
    return ""


@contextlib.contextmanager
def ends_with_parent() -> Iterator[None]:
    """Meanwhile Linux kills this process when the one that started it ends, even within a library
    that waits; on other systems nothing happens.

    Only for children of a process of one thread: Linux takes the end of the thread that started
    this process for the end of the parent.
    """
    if sys.platform != "linux":
        yield
        return
    import ctypes

    parent = os.getppid()
    prctl = ctypes.CDLL(None).prctl
    prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before Linux was asked
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        yield
    finally:
        prctl(_SET_PARENT_DEATH_SIGNAL, 0)


def wait_until_read(descriptor: int, seconds: float) -> None:
    """Return when whoever holds the other end of a pipe has read all that was written to it, or
    after some seconds: a launcher that ends its programs drops what it has not read by then.

    For anything but a pipe, and where the system does not tell, there is no waiting.
    """
    try:
        import fcntl
        import select
        import termios

        ends = select.poll()
        ends.register(descriptor, 0)
        until = time.perf_counter() + seconds
        while stat.S_ISFIFO(os.fstat(descriptor).st_mode) and time.perf_counter() < until:
            held = fcntl.ioctl(descriptor, termios.FIONREAD, struct.pack("i", 0))
            if not any(held) or ends.poll(0):  # an event: its last reader has gone
                return
            time.sleep(1e-3)
    except (ImportError, AttributeError, OSError, ValueError):
        return


def _stat(process: int) -> list[str]:
    """The fields that Linux lists of a process after its name, which may hold anything."""
    with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
