"""Many threads run the same nets at once; each must get what one thread gets alone.

    python -m campaign.sharing RUNS

`sanitized.py` runs it with the generated C under the sanitizers of gcc. In the beginning all
threads run each net at once for the first time, so that they compile, plan and load the same things
together; then each goes through the nets at its own pace, while the number of free cores seems to
change; at last somebody sets the number of threads again and again.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial

# gcc must not run under the sanitizer that this process was started with.
os.environ.pop("LD_PRELOAD", None)

import numpy as np

from opscope import options, set_threads
from opscope.framework.base.cpu import threads
from opscope.operators.backends.bfloat16 import bf16

from . import shared_nets, shared_speech
from .shared_nets import Results, Work

THREADS = 8
SWITCHES = 1e-4  # seconds after which a thread of Python lets another one go on
WORKS: dict[str, Callable[[], Work]] = {**shared_nets.WORKS, **shared_speech.WORKS}
LIBRARIES = (
    *(() if bf16.missing() else ("bf16,packed,direct,native,mkl,blas,xp",)),
    "packed,direct,native,mkl,blas,xp",
    "packed,direct,native,blas,xp",
    "blas,xp",
)
"""Kernel libraries: where MKL is installed, its products take the place of NumPy's BLAS."""
_CLOSE = 0.05
"""Difference allowed where products may be cut into other parts: updates such as Adam's turn a
rounding error of a gradient near zero into a step."""


def same(found: Results, wanted: Results) -> bool:
    """Whether two results are equal bit for bit."""
    return found.keys() == wanted.keys() and all(
        np.asarray(found[name]).tobytes() == np.asarray(wanted[name]).tobytes() for name in wanted
    )


def _close(found: Results, wanted: Results) -> bool:
    return found.keys() == wanted.keys() and all(
        np.allclose(found[name], wanted[name], _CLOSE, _CLOSE, equal_nan=True) for name in wanted
    )


class _Crew:
    """Threads that run works and count the results that are wrong."""

    def __init__(self, works: Mapping[str, Work]) -> None:
        self.works = list(works.items())
        self.wrong: list[str] = []
        self._begin = threading.Barrier(THREADS)

    def start_cold(self) -> dict[str, Results]:
        """All threads run each work at once; what it gives, which must be the same for all."""
        found: dict[str, list[Results]] = {name: [] for name, _ in self.works}

        def run(_: int) -> None:
            for name, work in self.works:
                self._begin.wait()
                self._try(name, lambda name=name, work=work: found[name].append(work()) or True)

        self._together(run)
        for name, results in found.items():
            if not all(same(one, results[0]) for one in results):
                self.wrong.append(f"{name}, cold")
        return {name: results[0] for name, results in found.items() if results}

    def run(
        self, runs: int, wanted: Mapping[str, Results], agrees: Callable[[Results, Results], bool]
    ) -> None:
        """Each thread makes so many runs, beginning with another work."""

        def run(me: int) -> None:
            self._begin.wait()
            for number in range(runs):
                name, work = self.works[(number + me * 5) % len(self.works)]
                self._try(name, lambda name=name, work=work: agrees(work(), wanted[name]))

        self._together(run)

    def _try(self, name: str, right: Callable[[], bool]) -> None:
        try:
            if not right():
                self.wrong.append(name)
        except Exception:
            traceback.print_exc()
            self.wrong.append(name)

    def _together(self, run: Callable[[int], None]) -> None:
        crew = [
            threading.Thread(target=copy_context().run, args=(run, me)) for me in range(THREADS)
        ]
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()


@contextmanager
def again_and_again(*calls: Callable[[], None]) -> Iterator[None]:
    """A thread makes one of the calls after the other, with pauses of random lengths."""
    ended, rng = threading.Event(), random.Random(0)

    def turn() -> None:
        while not ended.wait(rng.uniform(0, 0.02)):
            rng.choice(calls)()

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def free_cores_change() -> list[Callable[[], None]]:
    """Calls after which more or fewer cores seem to be free."""
    return [partial(threads._use, 1 + n) for n in range(threads.most_threads())]


def main(runs: int, makers: Mapping[str, Callable[[], Work]] = WORKS) -> int:
    """Run everything in all threads at once; the number of results that differ.

    Args:
        runs: of each thread. makers: of the works.
    """
    usual, began = sys.getswitchinterval(), time.monotonic()
    sys.setswitchinterval(SWITCHES)
    works = {name: make() for name, make in makers.items()}
    settings = sorted({threads.most_threads(), 1})
    shares = [runs // (len(LIBRARIES) + 1)] * len(LIBRARIES)
    wrong: list[str] = []
    wanted: Mapping[str, Results] = {}
    for libraries, share in zip(LIBRARIES, shares, strict=True):
        with options(libraries=libraries):
            crew = _Crew(works)
            wanted = crew.start_cold()
            wrong += [f"{n}, alone" for n, work in works.items() if not same(work(), wanted[n])]
            with again_and_again(*free_cores_change()):
                crew.run(share, wanted, same)
            wrong += crew.wrong
    crew = _Crew(works)
    with again_and_again(*(partial(set_threads, count) for count in settings)):
        crew.run(runs - sum(shares), wanted, _close)
    set_threads(None)
    sys.setswitchinterval(usual)
    wrong += crew.wrong
    count = THREADS * (runs + 2 * len(works))
    print(f"{', '.join(sorted(set(wrong)))}" if wrong else "all equal")
    print(
        f"{THREADS} threads, {runs} runs each of {len(works)} works, {count:,} with the cold ones,"
        f" {time.monotonic() - began:.0f} s: {len(wrong)} results differ"
    )
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if main(int(sys.argv[1])) else 0)
