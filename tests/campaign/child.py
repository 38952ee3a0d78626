"""Waits for a child that works, and says how it ended: by itself, by a signal, not at all.

A limit of wall time says nothing on a machine that others use: a child that nobody lets run is
late without a fault of its own. So a child that is late is looked at. It hangs if it sleeps, it is
too slow if it has used as much processor time; while it wants to run and may not, it is waited for.
"""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

LONGEST = 60.0
"""Seconds of a run, on a machine that lets it run."""
_ASLEEP = 10.0
"""Seconds of sleep of a child that is late, after which it hangs."""
_STARVED = 20
"""A child that may not run is waited for so many times as long."""
_LOOK = 0.1
_LAST_WORDS = 30.0
_SHOWN = 1500
_TICKS = os.sysconf("SC_CLK_TCK")


class StarvedError(Exception):
    """The machine had no time for a child: nothing is known of what it would have done."""


@dataclass
class Ending:
    """How a run ended.

    Attributes:
        code: its exit code, or minus a signal; None where it did not end by itself.
        told: what it wrote, and where it was if it did not end.
        seconds: of the clock. processor: seconds that it used of processors.
        late: hung, or too slow; empty where it ended by itself.
    """

    code: int | None
    told: str
    seconds: float
    processor: float
    late: str = ""

    def __str__(self) -> str:
        spent = f"after {self.seconds:.1f} s, {self.processor:.1f} s of processor time"
        if self.code is None:
            how = self.late
        elif self.code < 0:
            how = f"ended by signal {-self.code} ({_signal_name(-self.code)})"
        else:
            how = f"exit code {self.code}"
        return f"{how} {spent}; it told: {_short(self.told.strip()) or 'nothing'}"


def _short(text: str) -> str:
    """The beginning, where a traceback of `faulthandler` is, and the end, where Python's is."""
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]} [...] {text[-_SHOWN:]}"


def wait_for(child: int, reader: int, signaled: tuple[int, float] | None = None) -> Ending:
    """Wait for a child that has just begun.

    Args:
        reader: a pipe of what it tells; it is closed.
        signaled: a signal for it, and after how many seconds.

    Raises:
        StarvedError: the machine did not let it run.
    """
    begin = time.monotonic()
    os.set_blocking(reader, False)
    told, late, look = b"", "", _Look(child)
    with os.fdopen(reader, "rb", 0) as pipe:
        while True:
            done, status, usage = os.wait4(child, os.WNOHANG)
            passed = time.monotonic() - begin
            told += _waiting(pipe, 0 if done else 0.002)
            if done:
                used = usage.ru_utime + usage.ru_stime
                text = told.decode(errors="replace")
                if late.startswith("starved"):
                    raise StarvedError(f"{late}; it told: {text.strip() or 'nothing'}")
                code = None if late else os.waitstatus_to_exitcode(status)
                return Ending(code, text, passed, used, late)
            if signaled and passed >= signaled[1]:
                os.kill(child, signaled[0])
                signaled = None
            if not late:
                late = look.late(passed)
                if late:  # its traceback, see `faulthandler`, and its end
                    os.kill(child, signal.SIGABRT)
                    killed_at = passed + _LAST_WORDS
            elif passed > killed_at:
                os.kill(child, signal.SIGKILL)


class Sample(NamedTuple):
    """What a process and those that it began do.

    Attributes:
        used: seconds of processor time. runnable: whether one wants to run, or is stopped.
    """

    used: float
    runnable: bool


class _Look:
    """Looks at a child from time to time, and finds out why it is late."""

    def __init__(self, child: int) -> None:
        self._child = child
        self._looked = self._busy = self._used = 0.0

    def late(self, passed: float) -> str:
        """Why a child that has run for so long has not ended; empty where it may go on."""
        if passed - self._looked < _LOOK:
            return ""
        self._looked = passed
        now = sample(self._child)
        if now.runnable or now.used != self._used:
            self._busy, self._used = passed, now.used
        if now.used > LONGEST:
            return "too slow"
        if passed > LONGEST and passed - self._busy > _ASLEEP:
            return f"hung (asleep for {passed - self._busy:.0f} s)"
        if passed > _STARVED * LONGEST:
            return f"starved: {now.used:.1f} s of processor time in {passed:.0f} s"
        return ""


def sample(process: int) -> Sample:
    """What a process does, by Linux; elsewhere all sleep."""
    used, runnable = 0.0, False
    try:  # with threads and children that have ended
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
        used = sum(int(number) for number in fields[11:15]) / _TICKS
    except OSError:
        return Sample(used, runnable)
    for task in Path(f"/proc/{process}/task").glob("*"):
        try:
            runnable |= (task / "stat").read_bytes().rpartition(b")")[2].split()[0] in b"RDT"
            children = (task / "children").read_text().split()
        except OSError:  # it has just ended
            continue
        for child in children:
            below = sample(int(child))
            used, runnable = used + below.used, runnable or below.runnable
    return Sample(used, runnable)


def _waiting(pipe: BinaryIO, seconds: float) -> bytes:
    if select.select([pipe], [], [], seconds)[0]:
        return pipe.read(1 << 16) or b""
    return b""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "no name"
