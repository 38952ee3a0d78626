"""The same run again and again while everything around it changes; the bits must not.

    python build.py campaign --repeats N

Each of the works of `sharing.py` is repeated while a second thread runs another one, a process
beside it spins, memory that is free holds NaN, the threads move from core to core, the number of
free cores seems to change, and the whole process is stopped and goes on at random moments.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing.connection import Connection

import numpy as np

from .shared_nets import Work
from .sharing import SWITCHES, WORKS, again_and_again, free_cores_change, same

LOOPED = "looped"
"""The work that is repeated in full; it computes `_OUTPUTS` looped outputs at once."""
_OUTPUTS = 10
LIGHT = (
    "chunks",
    "convolution prediction",
    "copies",
    "dense",
    "random integers",
    "recurrent prediction",
    "stacks",
    "team prediction",
)
"""Works of few milliseconds that are native code for the most part: a fifth. Others: a fiftieth."""
NEIGHBORS = "wide lstm", "wide training, double", "dense", "convolutions", "nnet3 training"
"""Works for the second thread: team, packed products, products in parts, updates."""
_PERTURBED = "170"  # the byte, and its opposite


def _fill_with_nan(rng: random.Random) -> None:
    """Leave NaN in memory of all sizes that is then free."""
    held = [np.full(rng.randrange(1, 1 << size), np.nan, np.float32) for size in range(4, 18)]
    del held


def _move_threads(rng: random.Random) -> None:
    """Put each thread of the process on some of its cores."""
    cores = list(os.sched_getaffinity(0))
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setaffinity(int(task), rng.sample(cores, rng.randrange(1, len(cores) + 1)))


def _disturb(target: int, ended: Connection) -> None:
    """In a process of its own: spin, and stop the other process for moments."""
    rng = random.Random(1)
    while not ended.poll(0):
        until = time.monotonic() + rng.uniform(0, 0.05)
        while time.monotonic() < until:
            pass
        os.kill(target, signal.SIGSTOP)
        try:
            time.sleep(rng.uniform(0, 0.002))
        finally:
            os.kill(target, signal.SIGCONT)


@contextlib.contextmanager
def unrest() -> Iterator[None]:
    """While this lasts, a process beside this one spins and stops it; memory holds NaN; threads
    move."""
    cores, rng = os.sched_getaffinity(0), random.Random(2)
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    beside = context.Process(target=_disturb, args=(os.getpid(), theirs), daemon=True)
    beside.start()
    moves: list[Callable[[], None]] = [lambda: _fill_with_nan(rng), lambda: _move_threads(rng)]
    try:
        with again_and_again(*moves, *free_cores_change()):
            yield
    finally:
        ours.send(None)
        beside.join()
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(task), cores)


@contextlib.contextmanager
def beside(works: Iterable[Work]) -> Iterator[None]:
    """A second thread runs these works in turn."""
    ended = threading.Event()

    def run() -> None:
        for work in itertools.cycle(works):
            if ended.is_set():
                return
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run_all(
    count: int,
    works: Mapping[str, Callable[[], Work]] = WORKS,
    neighbors: Iterable[str] = NEIGHBORS,
) -> int:
    """Repeat works, and print the table; the number of results that differ.

    That memory which is taken or freed holds no zeros is settled when a process starts: see
    `in_a_process`.

    Args:
        count: of looped outputs; other works get a share of it. works: what makes them.
        neighbors: names of the works of the second thread.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCHES)
    others = [WORKS[name]() for name in neighbors]
    made = {name: make() for name, make in works.items()}
    wanted = {name: work() for name, work in made.items()}
    print("| work | runs | differ | seconds |\n| --- | --- | --- | --- |", flush=True)
    total = differing = 0
    with beside(others), unrest():
        for name in sorted(made, key=lambda name: (name != LOOPED, name not in LIGHT)):
            runs = -(-count // (_OUTPUTS if name == LOOPED else 5 if name in LIGHT else 50))
            began = time.monotonic()
            wrong = sum(not same(made[name](), wanted[name]) for _ in range(runs))
            seconds = time.monotonic() - began
            print(f"| {name} | {runs:,} | {wrong} | {seconds:.0f} |", flush=True)
            total, differing = total + runs, differing + wrong
    sys.setswitchinterval(usual)
    print(f"| all | {total:,} | {differing} | |")
    return differing


def in_a_process(count: int) -> int:
    """The exit code of a process in which glibc fills memory that is taken or freed."""
    command = [sys.executable, "-P", "-m", "campaign.threads.repeats", str(count)]
    environment = os.environ | {"MALLOC_PERTURB_": _PERTURBED}
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(1 if run_all(int(sys.argv[1])) else 0)
