"""Jobs as processes of this machine, as Kaldi's `run.pl` starts them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence

from ...framework.base.errors import RunError
from .job import Resources, Script

_GRACE = 2.0
"""Seconds between the polite signal and the other."""


class LocalRunner:
    """Starts each script in a session of its own, so that all its processes can be ended."""

    name, patience = "this machine", 0.0

    def __init__(self, resources: Resources) -> None:
        if resources.rest:
            raise RunError(f"--cmd: {' '.join(resources.rest)}: a local run has no such option")
        self.most, self.threads = resources.most, resources.threads
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, script: Script) -> str:
        """See `JobRunner`."""
        try:
            with open(script.output, "ab") as output:
                process = subprocess.Popen(
                    ["/bin/sh", script.path],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            raise RunError(f"cannot start {script.path}: {error.strerror}") from error
        identifier = f"{process.pid}@{_birth(process.pid)}"
        self._started[identifier] = process
        return identifier

    def poll(self, identifiers: Sequence[str]) -> set[str]:
        """See `JobRunner`."""
        return {identifier for identifier in identifiers if self._is_alive(identifier)}

    def _is_alive(self, identifier: str) -> bool:
        process = self._started.get(identifier)
        if process is not None:
            return process.poll() is None
        pid, _, birth = identifier.partition("@")
        return bool(birth) and pid.isdecimal() and _birth(int(pid)) == birth

    def cancel(self, identifier: str) -> None:
        """See `JobRunner`."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._is_alive(identifier):
                return
            pid = int(identifier.partition("@")[0])
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
            end = time.monotonic() + _GRACE
            while self._is_alive(identifier) and time.monotonic() < end:
                time.sleep(0.02)


def _birth(pid: int) -> str:
    """When a process began, as the system writes it; empty where there is none. A number is given
    to another process some day, with another beginning."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return "" if fields[0] == b"Z" else fields[19].decode()
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return ""
    except (OSError, IndexError):
        return ""
    with contextlib.suppress(OSError):
        told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True)
        return "_".join(told.stdout.decode().split())
    return ""
