"""Sides of a workload timed in turn, round by round, under one condition."""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workloads.workload import OURS

from .neighbors import neighbor
from .without import held, settings

HERE = pathlib.Path(__file__).resolve().parents[1]
_REST = 0.1
"""Seconds before each round: threads of ONNX Runtime and OpenMP wait awake for some 20 ms after
their last call, on a core that the next side wants."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPSCOPE_THREADS")


@dataclass(frozen=True)
class Condition:
    """Under what sides are measured.

    Attributes:
        threads: of each side.
        where: "apart": each side in a process of its own; "together": all in one, which has loaded
            the peers before; a kind of neighbor (see `neighbors.py`): apart, beside one.
        without: what our side does without (see `without.py`); "" is all of the machine.
    """

    threads: int
    where: str
    without: str = ""

    @property
    def told(self) -> str:
        """What a line and the head of a column say."""
        lacking = f", without {self.without}" if self.without else ""
        return f"{self.where}, {self.threads}{lacking}"


@dataclass
class Times:
    """What was measured of a side.

    Attributes:
        wall, cpu: seconds of a call, one number a round.
        first: seconds from nothing to the end of the first call, imports included.
        peak_mb: the most memory of its process; not known of sides that share one.
    """

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    first: float = 0.0
    peak_mb: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.wall)

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, by the median."""
        if len(self.wall) < 4:
            return 0.0
        low, _, high = statistics.quantiles(self.wall, n=4)
        return (high - low) / 2 / self.median


def environment(threads: int, without: str) -> dict[str, str]:
    """Of a process that computes on so many threads, without something of the machine.

    Python keeps compiled modules, as it does for users: compiling them is not what is measured.
    """
    env = dict(os.environ) | dict.fromkeys(THREADS, str(threads)) | settings(without)
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


class Worker:
    """A process of `worker.py`."""

    def __init__(self, threads: int, path: str = "", without: str = "") -> None:
        env = environment(threads, without)
        if path:
            env["PYTHONPATH"] = path
        command = [sys.executable, str(HERE / "side_by_side" / "worker.py"), str(threads)]
        env["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [env.get("PYTHONPATH")])])
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)

    def ask(self, **asked: Any) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin and stdout
        print(json.dumps(asked), file=stdin, flush=True)
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {asked} ended with {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def measure(
    workload: str,
    sides: Mapping[str, str],
    condition: Condition,
    rounds: int,
    seconds: float,
    warm: float,
    paths: Mapping[str, str],
) -> tuple[dict[str, Times], dict[str, str]]:
    """Times of the sides, and why others are absent.

    Args:
        sides: name that is shown -> side of the workload.
        seconds: that a round of one side takes about. warm: seconds of calls before the first.
        paths: by shown name, the folder that has another opscope.
    """
    together = condition.where == "together"
    shared = Worker(condition.threads) if together else None
    workers: dict[str, Worker] = {}
    found: dict[str, Times] = {}
    absent: dict[str, str] = {}
    repeats: dict[str, int] = {}
    try:
        # Peers first: their libraries are there when ours begins.
        for shown in reversed(list(sides)):
            ours = sides[shown] == OURS
            without = condition.without if ours else held(condition.without)
            worker = shared or Worker(condition.threads, paths.get(shown, ""), without)
            workers[shown] = worker
            try:
                answer = worker.ask(workload=workload, side=sides[shown], warm=warm)
            except RuntimeError as ended:
                if together:
                    raise
                answer = {"absent": str(ended)}
            if "absent" in answer:
                absent[shown] = answer["absent"]
                continue
            found[shown] = Times(first=answer["first"])
            repeats[shown] = max(1, round(seconds / max(answer["call"], 1e-7)))
        with neighbor(condition.where):
            for _ in range(rounds):
                for shown, times in found.items():
                    key = f"{workload}/{sides[shown]}"
                    time.sleep(_REST)
                    answer = workers[shown].ask(time=key, repeats=repeats[shown])
                    times.wall.append(answer["wall"])
                    times.cpu.append(answer["cpu"])
                    times.peak_mb = None if together else answer["peak_mb"]
    finally:
        for worker in {id(worker): worker for worker in workers.values()}.values():
            worker.close()
    return {shown: found[shown] for shown in sides if shown in found}, absent


def program(
    command: list[str], threads: int, path: str = "", without: str = ""
) -> tuple[float, float]:
    """Seconds on the clock and of the CPU that a whole program takes."""
    env = environment(threads, without)
    if path:
        env["PYTHONPATH"] = path
    before, started = os.times(), time.perf_counter()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall = time.perf_counter() - started
    after = os.times()
    used = after.children_user + after.children_system
    return wall, used - before.children_user - before.children_system


def ceiling(threads: int, without: str = "") -> float:
    """Floating-point operations a second of a large product without these parts of the machine: the
    best of ours and of the libraries that are there."""
    code = (
        "import time, numpy as np\n"
        "a, b = (np.random.rand(2048, 2048).astype('f') for _ in 'ab')\n"
        "kinds = [lambda: a @ b]\n"
        "try:\n"
        f"    import torch; torch.set_num_threads({threads})\n"
        "    x, y = torch.from_numpy(a), torch.from_numpy(b)\n"
        "    kinds.append(lambda: torch.mm(x, y))\n"
        "except ImportError: pass\n"
        "import opscope\n"
        "net = opscope.NetBuilder('product')\n"
        "out = net.matmul(net.input('a', [-1, 2048]), net.input('b', [2048, 2048]))\n"
        "scope, fed = opscope.Scope(), {'a': a, 'b': b}\n"
        "run = lambda: net.run(scope, feed=fed, fetch=[out])\n"
        "kinds.append(run); run()\n"
        "def seconds(call):\n"
        "    started = time.perf_counter(); call(); return time.perf_counter() - started\n"
        "print(2 * 2048**3 / min(seconds(kind) for _ in range(8) for kind in kinds))\n"
    )
    env = environment(threads, without)
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True
    )
    return float(done.stdout)
