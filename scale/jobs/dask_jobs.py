"""Jobs as tasks of Dask, on a cluster that is there or on workers of this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ...framework.base.errors import RunError
from .job import Resources, Script

_LOOKS = 0.5
"""Seconds between two looks of a task for the file that ends it."""
_CONNECT = 30.0
"""Seconds that the scheduler may take to answer."""


def run_script(path: str, output: str, end: str) -> int:
    """Run a shell script on a worker; returns its exit status. A file `end` ends it."""
    with open(output, "ab") as file:
        process = subprocess.Popen(
            ["/bin/sh", path], stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOKS)
        if os.path.exists(end):
            process.kill()


class DaskRunner:
    """`dask ADDRESS`, or `dask` alone for workers of this machine, `--max-jobs-run` of them.

    Dask forgets tasks whose client has gone: where a run is cut off, its jobs are run again.
    """

    name = "Dask"
    patience = 2.0

    def __init__(self, resources: Resources) -> None:
        try:
            distributed: Any = import_module("distributed")
        except ImportError as error:
            raise RunError(f"{error}; Dask is missing: pip install 'opscope[dask]'") from None
        if len(resources.rest) > 1:
            raise RunError(f"--cmd: dask {' '.join(resources.rest)}: want `dask [ADDRESS]`")
        self.most = resources.most
        self.threads = resources.threads or 1
        count = resources.most or os.cpu_count() or 1
        settings: dict[str, Any] = {"timeout": _CONNECT, "set_as_default": False}
        if resources.rest:
            settings["address"] = resources.rest[0]
        else:
            settings |= {"n_workers": count, "threads_per_worker": 1, "dashboard_address": None}
        try:
            self._client = distributed.Client(**settings)
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"cannot reach Dask's scheduler: {error}") from error
        self._tasks: dict[str, tuple[Any, str]] = {}

    def submit(self, script: Script) -> str:
        """See `JobRunner`."""
        key = f"{script.run}-{script.name}-{uuid.uuid4().hex[:8]}"
        end = f"{script.path}.end"
        words = (script.path, script.output, end)
        future = self._client.submit(run_script, *words, key=key, pure=False, retries=0)
        self._tasks[key] = future, end
        return key

    def poll(self, identifiers: Sequence[str]) -> set[str]:
        """See `JobRunner`."""
        known = {key: self._tasks[key][0] for key in identifiers if key in self._tasks}
        return {key for key, future in known.items() if future.status == "pending"}

    def cancel(self, identifier: str) -> None:
        """See `JobRunner`. A task under way cannot be ended by Dask; it looks for a file."""
        if identifier in self._tasks:
            future, end = self._tasks.pop(identifier)
            with open(end, "wb"):
                pass
            self._client.cancel([future])

    def close(self) -> None:
        """Leave the scheduler, and end workers that were started here."""
        self._client.close()
