"""Runs a reader or a generator in a process of its own, under limits of time and memory."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import math
import multiprocessing
import os
import resource
import signal
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opscope.framework.base.errors import OpscopeError

from .child import sample
from .inputs import Depth, Generator, Target, WrongError, input_of

SECONDS = 2.0
MEMORY = 1 << 30
KINDS = ("foreign", "wrong", "slow", "memory", "crash")
_LINE = 2000  # characters of a line of an error, at most
_TURN = 0.5  # seconds that are waited for a process at once
_HANGS = 60.0  # seconds of sleep after which a process that does not come back is ended
_BUSY = 60.0  # seconds of processor time, likewise
_STARVED = 3600.0  # seconds after which one that may not run is ended, which is no find
_LOOK = 5 * SECONDS  # seconds between two looks of a process at itself
_IDLE = 0.02  # seconds of processor time between them, below which it sleeps
_ROUND = 20_000  # inputs of a process; then comes a fresh one, so that nothing piles up
# A process must not be forked while another thread holds a lock of the package, or has both ends of
# a pipe.
_FORKING = threading.Lock()


@dataclass
class Found:
    """What came of the inputs of one reader or generator.

    Attributes:
        inputs: how many there were. refused: of them, with the package's own error.
        ran: of those of a generator, to their values.
        seconds: that they took. rounds: processes that read them, each with indexes of its own.
        finds: what went wrong -> the smallest file that showed it.
        counts: of foreign exceptions, of wrong values, of slow files, of files that took much
            memory, of crashes.
    """

    name: str
    inputs: int = 0
    refused: int = 0
    ran: int = 0
    seconds: float = 0.0
    rounds: int = 0
    finds: dict[str, bytes] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    @property
    def accepted(self) -> int:
        """Inputs that were neither refused nor a find."""
        return self.inputs - self.refused - sum(self.counts.values())

    def note(self, kind: str, what: str, data: bytes) -> None:
        """Count a find, and keep the smallest file that shows it."""
        self.counts[kind] += 1
        key = f"{kind}: {what}"
        if key not in self.finds or len(data) < len(self.finds[key]):
            self.finds[key] = data

    def add(self, other: Found) -> None:
        """Count what another run found as well."""
        self.inputs += other.inputs
        self.refused += other.refused
        self.ran += other.ran
        self.seconds += other.seconds
        self.rounds += other.rounds
        for kind, count in other.counts.items():
            self.counts[kind] += count
        for what, data in other.finds.items():
            if what not in self.finds or len(data) < len(self.finds[what]):
                self.finds[what] = data


@dataclass(frozen=True)
class Until:
    """When a reader has had enough: of inputs and of seconds.

    Attributes:
        total: inputs of all generators together.
        stopped: ends it earlier, at the next thing that the process tells.
    """

    inputs: int = 0
    seconds: float = 0.0
    total: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    def inputs_of(self, target: Target | Generator, shares: float) -> int:
        """How many inputs one of them gets, where the shares of all have a sum."""
        part = target.share / shares if isinstance(target, Generator) else 0.0
        return max(self.inputs, math.ceil(self.total * part))


class _TooLongError(BaseException):
    """Not an `Exception`, so that no reader takes it for its own."""


def campaign(
    target: Target | Generator,
    until: Until,
    seed: int,
    folder: Path,
    found: Found | None = None,
    tell: Callable[[Found], object] = lambda _: None,
) -> Found:
    """Give a reader or generator inputs until there were enough.

    Args:
        target: the reader or generator. seed: of what is damaged or made.
        folder: for files; a process that dies leaves its last one there.
        found: what earlier runs with this seed found; what they read is not read again.
        tell: takes what is found so far, about twice a second.
    """
    found = found or Found(target.name)
    with _FORKING:
        seeds = list(target.seeds(folder))
    last = target.last(folder)
    begin, before = time.monotonic(), found.seconds
    while not until.stopped.is_set():
        left = until.inputs - found.inputs
        seconds = until.seconds - (found.seconds - before)
        if left <= 0 and seconds <= 0:
            break
        found.rounds += 1
        last.unlink(missing_ok=True)
        end = time.monotonic() + seconds
        here, work = _started(target, seeds, left, end, seed, found.rounds - 1, last)
        watch = _Watch(work.pid)
        for told in _told_by(here, work, watch, until.stopped):
            found.inputs += told[0]
            found.refused += told[1]
            found.ran += told[2]
            for kind, what, data in told[3]:
                found.note(kind, what, data)
            found.seconds = before + time.monotonic() - begin
            tell(found)
        if work.exitcode and not until.stopped.is_set() and watch.late != "starved":
            found.inputs += 1
            code = work.exitcode
            what = signal.Signals(-code).name if code < 0 else f"exit {code}"
            what = f"{what}, {watch.late}" if watch.late else what
            found.note("crash", what, last.read_bytes() if last.exists() else b"")
        found.seconds = before + time.monotonic() - begin
    tell(found)
    return found


def _started(*arguments: Any) -> tuple[Any, Any]:
    """A process at work, and the end of the pipe that it tells through."""
    context = multiprocessing.get_context("fork")
    with _FORKING:
        here, there = context.Pipe(duplex=False)
        work = context.Process(target=_work, args=(*arguments, there))
        work.start()
        there.close()
    return here, work


class _Watch:
    """Tells why a process is late; time in which the machine does not let it run counts not."""

    def __init__(self, process: int) -> None:
        self._process, self.late = process, ""
        self.told()

    def told(self) -> None:
        """It has told something: it begins anew."""
        self._asleep = self._waited = 0.0
        self._before = self._used = sample(self._process).used

    def waited(self) -> None:
        """A turn went by without a word: `late` says why it is late, if it is."""
        now = sample(self._process)
        awake = now.runnable or now.used != self._used
        self._asleep = 0.0 if awake else self._asleep + _TURN
        self._used, self._waited = now.used, self._waited + _TURN
        if now.used - self._before > _BUSY:
            self.late = f"over {_BUSY:g} s of processor time"
        elif self._asleep > _HANGS:
            self.late = f"asleep for {_HANGS:g} s"
        elif self._waited > _STARVED:
            self.late = "starved"


def _told_by(here: Any, work: Any, watch: _Watch, stopped: threading.Event) -> Iterator[Any]:
    """What a process tells until it ends: by itself, because it is late, or because all told."""
    while True:
        if stopped.is_set() or watch.late:
            work.kill()
        elif not here.poll(_TURN):
            watch.waited()
            continue
        try:
            yield here.recv()
        except (EOFError, OSError):  # it ended, maybe in the middle of a word
            break
        watch.told()
    here.close()
    work.join()


def _work(
    target: Target | Generator,
    seeds: Sequence[bytes],
    most: int,
    end: float,
    seed: int,
    round_: int,
    last: Path,
    there: Any,
) -> None:
    _quiet()
    told_at, counts, finds, done = time.monotonic(), Counter(), [], 0
    while done < _ROUND:
        data = input_of(target, seed, round_ * _ROUND + done, seeds)
        last.write_bytes(data)
        outcome = examine(target.read, last)
        done += 1
        counts[outcome] += 1
        if isinstance(outcome, tuple):
            finds.append((*outcome, data))
        now = time.monotonic()
        enough = done >= most and now > end
        if now - told_at > 0.5 or finds or enough:
            there.send((counts.total(), counts[Depth.REFUSED], counts[Depth.RAN], finds))
            told_at, counts, finds = now, Counter(), []
        if enough:
            break
    there.send((counts.total(), counts[Depth.REFUSED], counts[Depth.RAN], finds))
    there.close()
    os._exit(0)


def finds(target: Target | Generator, count: int, folder: Path, seed: int = 0) -> Found:
    """Read whole files, and so many inputs, in this process."""
    seeds, found = list(target.seeds(folder)), Found(target.name)
    path = target.last(folder)
    for whole in seeds:
        path.write_bytes(whole)
        target.read(path)
    for index in range(count):
        data = input_of(target, seed, index, seeds)
        path.write_bytes(data)
        outcome = examine(target.read, path)
        found.inputs += 1
        found.refused += outcome == Depth.REFUSED
        found.ran += outcome == Depth.RAN
        if isinstance(outcome, tuple):
            found.note(*outcome, data)
    return found


Outcome = Depth | tuple[str, str]
"""How far an input came; or the kind of a find, and where it was."""


def examine(read: Callable[[Path], object], path: Path) -> Outcome:
    """What comes of an input, under the limits."""
    outcome, seconds = _examined(read, path)
    if isinstance(outcome, tuple) and outcome[0] == "slow" and seconds < SECONDS:
        outcome, seconds = _examined(read, path)  # the machine did something else, or it hangs
    if seconds > SECONDS and isinstance(outcome, Depth):
        # Once may be what the machine did besides; a slow reader is slow again.
        outcome, again = _examined(read, path)
        if again > SECONDS and isinstance(outcome, Depth):
            return "slow", f"more than {SECONDS:g} s, came to an end"
    return outcome


def _examined(read: Callable[[Path], object], path: Path) -> tuple[Outcome, float]:
    """What came of reading a file, and the CPU seconds it took."""
    outcome: Outcome = Depth.READ
    gc.freeze()  # what tests left before is not the reader's to collect
    begin = time.process_time()
    try:
        with held_to_limits():
            value = read(path)
        if isinstance(value, Depth):
            outcome = value
    except OpscopeError as error:
        outcome = Depth.REFUSED
        if max(map(len, str(error).splitlines()), default=0) > _LINE:
            outcome = "foreign", f"a line of over {_LINE} characters at {_place(error)}"
    except WrongError as error:
        outcome = "wrong", error.what
    except _TooLongError as error:
        outcome = "slow", _place(error)
    except MemoryError as error:
        outcome = "memory", _place(error)
    except Exception as error:
        outcome = "foreign", f"{type(error).__name__} at {_place(error)}"
    finally:
        seconds = time.process_time() - begin
        gc.unfreeze()
    return outcome, seconds


@contextlib.contextmanager
def held_to_limits() -> Iterator[None]:
    """Within the block a process that takes much memory or time gets an exception."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, _Alarm())
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, before[1]))
    signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGALRM, handler)


class _Alarm:
    """Ends a reading that computes for too long or sleeps, and none that the machine lets wait."""

    def __init__(self) -> None:
        self._begin = self._seen = time.process_time()
        self._idle = 0

    def __call__(self, *_: object) -> None:
        now = time.process_time()
        # One look without work may be that of a process that was stopped.
        self._idle = self._idle + 1 if now - self._seen < _IDLE else 0
        self._seen = now
        if now - self._begin > SECONDS or self._idle > 1:
            raise _TooLongError


def _place(error: BaseException) -> str:
    """The innermost place of the package that an exception came through."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "opscope" in frame.filename and "/tests/" not in frame.filename
    ]
    if not frames:
        return "no place of the package"
    return f"{'/'.join(Path(frames[-1].filename).parts[-3:])}:{frames[-1].lineno}"


def _quiet() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for this one decides
    faulthandler.disable()  # what a process dies of is told by its signal
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nowhere, number)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
