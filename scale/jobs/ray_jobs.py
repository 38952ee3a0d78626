"""Jobs as tasks of Ray, on a cluster that is there or on workers of this machine."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from ...framework.base.errors import RunError
from ...framework.base.untrusted.opener import open_output
from .dask_jobs import run_script
from .job import Resources, Script


class RayRunner:
    """`ray ADDRESS`, or `ray` alone for workers of this machine, `--max-jobs-run` of them.

    Ray forgets tasks whose driver has gone: where a run is cut off, its jobs are run again.
    """

    name = "Ray"
    patience = 2.0

    def __init__(self, resources: Resources) -> None:
        try:
            import ray  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise RunError(f"{error}; Ray is missing: pip install 'opscope[ray]'") from None
        if len(resources.rest) > 1:
            raise RunError(f"ray {' '.join(resources.rest)}: want `ray [ADDRESS]`")
        self.most = resources.most
        self.threads = resources.threads or 1
        settings: dict[str, Any] = {"log_to_driver": False, "include_dashboard": False}
        if resources.rest:
            settings = {"address": resources.rest[0], "log_to_driver": False}
        elif resources.most:
            settings["num_cpus"] = resources.most * self.threads
        try:
            ray.init(**settings)
        except (OSError, ValueError, RuntimeError) as error:  # ConnectionError is an OSError
            raise RunError(f"cannot reach Ray: {error}") from error
        wanted = {"num_cpus": self.threads, "num_gpus": resources.gpus, "max_retries": 0}
        self._ray = ray
        self._run = ray.remote(**wanted)(run_script)
        self._tasks: dict[str, tuple[Any, str]] = {}

    def submit(self, script: Script) -> str:
        """See `JobRunner`."""
        key = f"{script.run}-{script.name}-{uuid.uuid4().hex[:8]}"
        end = f"{script.path}.end"
        self._tasks[key] = self._run.remote(script.path, script.output, end), end
        return key

    def poll(self, identifiers: Sequence[str]) -> set[str]:
        """See `JobRunner`."""
        known = {key: self._tasks[key][0] for key in identifiers if key in self._tasks}
        if not known:
            return set()
        _, waiting = self._ray.wait(list(known.values()), num_returns=len(known), timeout=0)
        return {key for key, task in known.items() if task in waiting}

    def cancel(self, identifier: str) -> None:
        """See `JobRunner`. The process of a task under way looks for a file that ends it."""
        if identifier in self._tasks:
            task, end = self._tasks.pop(identifier)
            with open_output(end):
                pass
            self._ray.cancel(task)

    def close(self) -> None:
        """Leave Ray, and end workers that were started here."""
        self._ray.shutdown()
