"""A process that holds steps of workloads and times them when it is told to.

It is asked in JSON lines on its standard input, and answers each with one on its standard output;
what libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    threads = int(sys.argv[1])
    steps: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        answer = _load(steps, asked, threads) if "side" in asked else _time(steps, asked)
        print(json.dumps(answer), file=answers, flush=True)


def _load(
    steps: dict[str, Callable[[], object]], asked: dict[str, Any], threads: int
) -> dict[str, Any]:
    """Makes a side's step and calls it for some seconds, in which loops that prove hot are
    compiled; answers how long a call takes, or why there is none."""
    from workloads import ALL, BOARD
    from workloads.workload import Absent

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    try:
        step = (ALL | BOARD)[asked["workload"]].sides[asked["side"]](threads)
        step()
    except Absent as absent:
        return {"absent": str(absent)}
    except Exception as error:  # whatever a library raises: the other sides are measured
        traceback.print_exc()
        told = str(error).strip().partition("\n")[0]
        return {"absent": f"{type(error).__name__}: {told}"}
    first = time.perf_counter() - started
    steps[f"{asked['workload']}/{asked['side']}"] = step
    calls = 0
    spent = 0.0
    while spent < asked["warm"] or calls < 3:
        called = time.perf_counter()
        step()
        took = time.perf_counter() - called
        calls = calls + 1
        spent = spent + took
    return {"first": first, "call": took, "before_kb": before}


def _time(steps: dict[str, Callable[[], object]], asked: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a call, on the clock and of the CPU, over so many calls."""
    step = steps[asked["time"]]
    repeats = asked["repeats"]
    cpu, started = time.process_time(), time.perf_counter()
    for _ in range(repeats):
        step()
    wall = time.perf_counter() - started
    return {
        "wall": wall / repeats,
        "cpu": (time.process_time() - cpu) / repeats,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    main()
