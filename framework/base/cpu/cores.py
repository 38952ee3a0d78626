"""Which cores this process may use, and how many of them others leave free now."""

from __future__ import annotations

import functools
import os
import platform
import time
from pathlib import Path

_CPU = ("cpu", "cpu,cpuacct", "cpuacct,cpu")  # names of version 1's controller
_NICE = 0.25
"""Share of a core that a process of low priority keeps from one of ordinary priority."""


def usable_cores(root: str = "/") -> int:
    """Cores that the process may use: of the machine, its affinity and the limits of its cgroups.

    A limit of 1.5 cores counts as one: a second thread would be stopped half of the time.

    Args:
        root: of the file systems `proc` and `sys`, for tests.
    """
    cores = os.cpu_count() or 1
    affinity = getattr(os, "sched_getaffinity", None)
    if affinity is not None:
        cores = len(affinity(0))
    quota = cgroup_quota(root)
    return cores if quota is None else max(1, min(cores, int(quota)))


def cgroup_quota(root: str = "/") -> float | None:
    """Cores' worth of time that the cgroups of the process grant it; None without a limit.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst.
    """
    quotas = []
    for line in _text(Path(root, "proc/self/cgroup")).splitlines():
        _, names, path = (*line.split(":", 2), "", "")[:3]
        if names and not set(names.split(",")) & {"cpu"}:
            continue
        for folder in _cgroup_folders(Path(root, "sys/fs/cgroup"), names, path.strip("/")):
            # Version 2 has one file with both numbers, version 1 two files.
            quota = _quota(_text(folder / "cpu.max").split()) or _quota(
                [_text(folder / f"cpu.cfs_{word}_us").strip() for word in ("quota", "period")]
            )
            if quota is not None:
                quotas.append(quota)
    # Every cgroup around the process limits it: the tightest one counts.
    return min(quotas, default=None)


def _cgroup_folders(mount: Path, names: str, path: str) -> list[Path]:
    """The folders of a cgroup and of those around it, which limit it as well."""
    mounts = [mount / name for name in dict.fromkeys((names, *_CPU))] if names else [mount]
    parts = Path(path).parts
    return [Path(each, *parts[:depth]) for each in mounts for depth in range(len(parts), -1, -1)]


def _quota(words: list[str]) -> float | None:
    """Quota and period in microseconds as a number of cores; None for "max", -1 or nothing."""
    try:
        quota, period = (int(word) for word in words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


@functools.cache
def is_intel() -> bool:
    """Whether the processor is one of Intel's; false where that is not known."""
    if platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686", "x86"):
        return False
    return "GenuineIntel" in (_text(Path("/proc/cpuinfo"))[:4096] or platform.processor())


def processor_name() -> str:
    """What the processor calls itself; "" where that is not known."""
    lines = _text(Path("/proc/cpuinfo"))[:4096].splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor()


class Load:
    """How many cores other processes keep busy, measured between one call and the next.

    From /proc/stat, less the process's own time; elsewhere than on Linux it is not known. In a
    container that hides the machine's other processes their load is seen all the same.
    """

    def __init__(self, root: str = "/") -> None:
        self._stat = os.path.join(root, "proc/stat")
        self._loadavg = os.path.join(root, "proc/loadavg")
        self._last = self._now()

    def runnable(self) -> int | None:
        """Threads of other processes that run or want to, at this moment; None: not known.

        For a first guess: the calling thread is taken for the only one of this process.
        """
        try:
            with open(self._loadavg) as file:
                # The fourth field is "runnable/all threads", and counts this one.
                return max(int(file.read().split()[3].split("/")[0]) - 1, 0)
        except (OSError, ValueError, IndexError):
            return None

    def busy(self) -> float | None:
        """Cores that others kept busy since the last call; None: not known."""
        before = self._last
        self._last = self._now()
        if before is None or self._last is None:
            return None
        seconds, total, own = (new - old for new, old in zip(self._last, before, strict=True))
        return max(total - own, 0.0) / seconds if seconds > 0 else None

    def _now(self) -> tuple[float, float, float] | None:
        """Seconds: of the clock, that all processes ran, that this one ran."""
        try:
            with open(self._stat) as file:
                ticks = [int(word) for word in file.readline().split()[1:9]]
            user, nice, system, _, _, interrupts, soft, steal = ticks
            per_second = os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, AttributeError):
            return None
        # Between processes of equally low priority a core is shared evenly.
        polite = os.getpriority(os.PRIO_PROCESS, 0) > 0
        busy = user + system + interrupts + soft + steal + nice * (1.0 if polite else _NICE)
        return time.monotonic(), busy / per_second, time.process_time()
