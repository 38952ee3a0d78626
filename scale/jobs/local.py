"""Jobs as processes of this machine, as Kaldi's `run.pl` starts them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence

from ...framework.base.errors import RunError
from ...framework.base.machine.processes import birth
from .job import Resources, Script

_GRACE = 2.0
"""Seconds between the polite signal and the other."""


class LocalRunner:
    """Starts each script in a session of its own, so that all its processes can be ended."""

    name = "this machine"
    patience = 0.0

    def __init__(self, resources: Resources) -> None:
        if resources.rest:
            raise RunError(f"--cmd: {' '.join(resources.rest)}: a local run has no such option")
        self.most = resources.most
        self.threads = resources.threads
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
        identifier = f"{process.pid}@{birth(process.pid)}"
        self._started[identifier] = process
        return identifier

    def poll(self, identifiers: Sequence[str]) -> set[str]:
        """See `JobRunner`."""
        return {identifier for identifier in identifiers if self._is_alive(identifier)}

    def _is_alive(self, identifier: str) -> bool:
        process = self._started.get(identifier)
        if process is not None:
            return process.poll() is None
        pid, _, began = identifier.partition("@")
        return bool(began) and pid.isdecimal() and birth(int(pid)) == began

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
