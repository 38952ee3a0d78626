"""Runs a reader on damaged files in a process of its own, under limits of time and memory."""

from __future__ import annotations

import faulthandler
import hashlib
import multiprocessing
import os
import random
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opscope.framework.base.errors import OpscopeError

from .mutate import Mutation, damaged

SECONDS = 2.0
MEMORY = 1 << 30
_HANGS = 30.0  # seconds until a process that does not come back is ended


@dataclass(frozen=True)
class Target:
    """A reader of the campaign.

    Attributes:
        name: of the reader. suffix: of its files.
        seeds: makes whole files of the kind, in a folder.
        read: takes the path of a file and reads it as a user would.
        kinds: how files are damaged.
    """

    name: str
    suffix: str
    seeds: Callable[[Path], Sequence[bytes]]
    read: Callable[[Path], object]
    kinds: Sequence[Mutation]


@dataclass
class Found:
    """What came of the damaged files of one reader.

    Attributes:
        inputs: how many there were. refused: of them, with the package's own error.
        finds: what went wrong -> the first file that showed it.
        counts: of foreign exceptions, of slow files, of files that took much memory, of crashes.
    """

    name: str
    inputs: int = 0
    refused: int = 0
    seconds: float = 0.0
    finds: dict[str, bytes] = field(default_factory=dict)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("foreign", "slow", "memory", "crash"), 0)
    )

    def note(self, kind: str, what: str, data: bytes) -> None:
        """Count a find, and keep the smallest file that shows it."""
        self.counts[kind] += 1
        key = f"{kind}: {what}"
        if key not in self.finds or len(data) < len(self.finds[key]):
            self.finds[key] = data


class _TooLongError(BaseException):
    """Not an `Exception`, so that no reader takes it for its own."""


def campaign(target: Target, seconds: float, seed: int, folder: Path) -> Found:
    """Read damaged files for some time.

    Args:
        target: the reader. seconds: how long. seed: of what is damaged.
        folder: for files; a process that dies leaves its last one there.
    """
    found = Found(target.name)
    seeds = list(target.seeds(folder))
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        last = folder / f"{target.name}-last{target.suffix}"
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        work = context.Process(
            target=_work,
            args=(target, seeds, end, f"{seed}/{target.name}/{number}", last, there),
        )
        work.start()
        there.close()
        _collect(found, here, work, last)
    found.seconds = seconds
    return found


def _collect(found: Found, here: Any, work: Any, last: Path) -> None:
    """Take what a process tells until it ends, by itself or because it hangs."""
    while True:
        if not here.poll(_HANGS):
            work.kill()
        try:
            told = here.recv()
        except EOFError:
            break
        found.inputs += told[0]
        found.refused += told[1]
        for kind, what, data in told[2]:
            found.note(kind, what, data)
    work.join()
    if work.exitcode:
        found.inputs += 1
        signal_name = signal.Signals(-work.exitcode).name if work.exitcode < 0 else "exit"
        found.note("crash", signal_name, last.read_bytes())


def _work(
    target: Target, seeds: Sequence[bytes], end: float, seed: str, last: Path, there: Any
) -> None:
    _quiet()
    _limit_memory()
    rng = random.Random(seed)
    told_at, counts, finds = time.monotonic(), [0, 0], []
    for _ in range(20_000):  # then a fresh process, so that nothing piles up
        data = damaged(rng.choice(seeds), rng, seeds, target.kinds)
        last.write_bytes(data)
        outcome = examine(target.read, last)
        counts[0] += 1
        counts[1] += outcome == "refused"
        if isinstance(outcome, tuple):
            finds.append((*outcome, data))
        now = time.monotonic()
        if now - told_at > 0.5 or finds:
            there.send((*counts, finds))
            told_at, counts, finds = now, [0, 0], []
        if now > end:
            break
    there.send((*counts, finds))
    there.close()
    os._exit(0)


def examine(read: Callable[[Path], object], path: Path) -> str | tuple[str, str]:
    """`read`, `refused`, or the kind of a find and where it was."""
    begin = time.process_time()
    signal.signal(signal.SIGALRM, _alarm)
    signal.setitimer(signal.ITIMER_REAL, 5 * SECONDS)
    try:
        read(path)
        outcome: str | tuple[str, str] = "read"
    except OpscopeError:
        outcome = "refused"
    except _TooLongError as error:
        return "slow", _place(error)
    except MemoryError as error:
        return "memory", _place(error)
    except Exception as error:
        return "foreign", f"{type(error).__name__} at {_place(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if time.process_time() - begin > SECONDS:
        return "slow", "more than 2 s, came to an end"
    return outcome


def _alarm(*_: object) -> None:
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
    faulthandler.disable()  # what a process dies of is told by its signal
    warnings.simplefilter("ignore")
    import logging

    logging.disable(logging.CRITICAL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nowhere, number)


def _limit_memory() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def keep(found: Found, target: Target, folder: Path) -> Iterator[str]:
    """Write the file of each find into a folder; lines that say how to see it again."""
    folder.mkdir(parents=True, exist_ok=True)
    for what, data in sorted(found.finds.items()):
        name = f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}{target.suffix}"
        (folder / name).write_bytes(data)
        yield f"{target.name}: {what}\n    python build.py campaign --read {folder / name}"
