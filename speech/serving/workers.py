"""The workers of a server: where its event loop has the tasks of clients done.

A process of Python computes on little more than one core, so each core has a worker in a process of
its own. All of them are forked from the server, with which they share the model. One that ends
takes its streams with it; another one takes its place.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from typing import Any, Protocol

from ...framework.base.errors import OpscopeError
from .worker import ANSWER, REQUEST, Worker, fork

_log = logging.getLogger(__name__)
_ENDED = "the process that worked on it has ended"
_AGAIN = 1.0
"""Seconds after the end of a process, until another one takes its place; and from one question to
processes that live to the next."""
_SILENT = 10  # questions for which a process has no answer, until it is killed
_STILL = 300
"""Answers of a process by which its work stands still, until it is killed; and one more for each
second of sound that it has to hear at once."""
_TELLING = 1.0  # seconds that processes have to tell their counts, until the last known ones count
_ENDING = 10.0  # seconds that a process has to end by itself
_POLL = 0.02  # seconds from one look at a process that ends to the next
_CAN_FORK = hasattr(os, "fork") and sys.platform != "darwin"
"""On macOS the child of a fork may not use the system's libraries, such as Accelerate."""


class WorkerError(Exception):
    """Something failed in a worker, which has logged it; the client is not at fault."""


class EndedError(WorkerError):
    """A worker has ended."""


def process_count(asked: int | None, cores: int) -> int:
    """How many processes compute: those that are asked for, or one for each core.

    Raises:
        OpscopeError: more than one is asked for, and the system cannot fork them.
    """
    if asked is not None and asked > 1 and not _CAN_FORK:
        raise OpscopeError(f"--processes {asked}: on this system, the server has one process")
    return asked or (cores if _CAN_FORK else 1)


class _Place(Protocol):
    """Where a worker is: in this process, or in another one.

    Attributes:
        tasks: how many it has. alive: whether it can do anything. counted: the last known counts.
    """

    tasks: int
    alive: bool
    counted: dict[str, int]

    def open(self, number: int, kind: str, settings: dict[str, Any]) -> None: ...

    def call(self, number: int, method: str, *values: Any) -> asyncio.Future[Any]: ...

    def drop(self, number: int) -> None: ...

    def counts(self) -> asyncio.Future[dict[str, int]]: ...

    def is_hung(self) -> bool: ...

    def kill(self) -> None: ...

    def end(self) -> asyncio.Future[None]: ...


class Task:
    """What a worker does for a client."""

    def __init__(self, place: _Place, number: int) -> None:
        self._place = place
        self._number = number

    async def call(self, method: str, *values: Any) -> Any:
        """Call a method of the task.

        Args:
            values: texts, numbers; the last one may be bytes.

        Raises:
            OpscopeError: as the method. WorkerError, EndedError: see there.
        """
        return await self._place.call(self._number, method, *values)


class Workers:
    """Do tasks of clients; each goes to the worker with the fewest.

    Args:
        worker: whose copies they are. processes: how many; 1: it works in this process.
    """

    def __init__(self, worker: Worker, processes: int) -> None:
        self._worker = worker
        self._processes = processes
        self._places: list[_Place] = []
        # Totals of processes that others have replaced.
        self._ended: Counter[str] = Counter(processes_hung_total=0)
        self._numbers = count()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have the workers within this block.

        Raises:
            OpscopeError: the system does not let the server have as many processes.
        """
        if self._processes == 1:
            self._places.append(_Here(self._worker))
        else:
            try:
                self._places += [await _process(self._worker) for _ in range(self._processes)]
            except OSError as error:
                message = f"cannot begin {self._processes} processes: {error.strerror}"
                raise OpscopeError(message) from None
        watching = asyncio.ensure_future(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(*(each.end() for each in self._places))

    @contextmanager
    def task(self, kind: str, **settings: Any) -> Iterator[Task]:
        """A task of a kind of `TASKS` within this block.

        Raises:
            EndedError: all processes have ended, and no other one has begun yet.
        """
        place = min(self._places, key=lambda each: (not each.alive, each.tasks))
        if not place.alive:
            raise EndedError("no process of the server is there to work")
        number = next(self._numbers)
        place.open(number, kind, settings)
        place.tasks += 1
        try:
            yield Task(place, number)
        finally:
            place.tasks -= 1
            place.drop(number)

    async def counts(self) -> dict[str, float]:
        """Values of metrics, of all workers; of one that does not answer, the last known ones."""
        if asked := [each.counts() for each in self._places if each.alive]:
            await asyncio.wait(asked, timeout=_TELLING)
        total = Counter(self._ended)
        for place in self._places:
            total.update(place.counted if place.alive else _totals(place.counted))
        return dict(total)

    async def _watch(self) -> None:
        """Kill processes that hang, and let another one take the place of each that has ended."""
        while True:
            await asyncio.sleep(_AGAIN)
            for at, place in enumerate(self._places):
                if place.alive:
                    if place.is_hung():
                        self._ended["processes_hung_total"] += 1
                        place.kill()
                    continue
                try:
                    self._places[at] = await _process(self._worker)
                except OSError as error:  # there may be memory for it later
                    _log.error("cannot begin another process: %s", error.strerror)
                else:
                    self._ended.update(_totals(place.counted))


def _totals(counted: dict[str, int]) -> dict[str, int]:
    """What a worker that has ended has done."""
    return {name: value for name, value in counted.items() if name.endswith("_total")}


class _Here:
    """A worker in this process, whose lanes use all cores."""

    alive = True

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.tasks = 0
        self.counted: dict[str, int] = {}
        self.open = worker.open
        self.drop = worker.drop

    def call(self, number: int, method: str, *values: Any) -> asyncio.Future[Any]:
        return asyncio.wrap_future(self._worker.call(number, method, *values))

    def counts(self) -> asyncio.Future[dict[str, int]]:
        self.counted = self._worker.counts()
        return _known(self.counted)

    def is_hung(self) -> bool:
        return False  # it is the process that asks

    def kill(self) -> None: ...

    def end(self) -> asyncio.Future[None]:
        return _known(self._worker.close())


def _known(value: Any) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


async def _process(worker: Worker) -> _Process:
    """Fork a process with a worker."""
    pid, channel = fork(worker)
    _, process = await asyncio.get_running_loop().create_connection(
        lambda: _Process(pid), sock=channel
    )
    return process


class _Process(asyncio.Protocol):
    """A worker in another process, by messages; see `fork`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._calls = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._read = bytearray()
        self._gone = asyncio.get_running_loop().create_future()
        self._ending = False
        self._silent = 0  # questions in a row that it has not answered
        self._asked: asyncio.Future[dict[str, int]] | None = None
        self._turns = -1  # of its lanes, by the last answer
        self._still = 0  # answers in a row by which no lane has ended its turn
        self.tasks = 0
        self.alive = True
        self.counted: dict[str, int] = {}

    def open(self, number: int, kind: str, settings: dict[str, Any]) -> None:
        self._send(["open", False, number, kind, settings])

    def drop(self, number: int) -> None:
        self._send(["drop", False, number])

    def call(self, number: int, method: str, *values: Any) -> asyncio.Future[Any]:
        if values and isinstance(values[-1], bytes | bytearray):
            return self._ask(["call", True, number, method, *values[:-1]], bytes(values[-1]))
        return self._ask(["call", False, number, method, *values])

    def counts(self) -> asyncio.Future[dict[str, int]]:
        asked = self._ask(["counts", False])
        asked.add_done_callback(self._keep_counts)
        return asked

    def is_hung(self) -> bool:
        """Ask for its counts; True: it has not answered for too long, or its work stands still.

        Questions are counted, not seconds: where the server itself was stopped, none were asked.
        """
        if self._asked is None or self._asked.done():
            self._silent = 0
            turns = self.counted.get("turns", 0)
            stands = turns == self._turns and self.counted.get("running", 0) > 0
            self._still = self._still + 1 if stands else 0
            self._turns = turns
            self._asked = self.counts()
        else:
            self._silent += 1
        still = _STILL + self.counted.get("held", 0) / _AGAIN
        return self._silent >= _SILENT or self._still >= still

    def _keep_counts(self, told: asyncio.Future[dict[str, int]]) -> None:
        if told.exception() is None:
            self.counted = told.result()

    def kill(self) -> None:
        """End it, whatever it does."""
        _log.error("process %d of the server does not answer: it is killed", self._pid)
        os.kill(self._pid, signal.SIGKILL)
        self._transport.abort()

    def end(self) -> asyncio.Future[None]:
        self._ending = True
        if self.alive:
            self._transport.abort()
        return self._gone

    # Inside

    def _ask(self, request: list[Any], data: bytes = b"") -> asyncio.Future[Any]:
        """Send a message that is answered."""
        future = asyncio.get_running_loop().create_future()
        if self.alive:
            self._waiting[self._send(request, data)] = future
        else:
            future.set_exception(EndedError(_ENDED))
        return future

    def _send(self, request: list[Any], data: bytes = b"") -> int:
        """Send a message, and give its number."""
        number = next(self._calls)
        head = json.dumps([number, *request]).encode()
        if self.alive:
            self._transport.writelines((REQUEST.pack(len(head), len(data)), head, data))
        return number

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        read = self._read
        read += data
        begin = 0
        while len(read) >= begin + ANSWER.size:
            (length,) = ANSWER.unpack_from(read, begin)
            end = begin + ANSWER.size + length
            if len(read) < end:
                break
            self._take(json.loads(read[begin + ANSWER.size : end]))
            begin = end
        del read[:begin]

    def _take(self, answer: dict[str, Any]) -> None:
        future = self._waiting.pop(answer["call"])
        if future.done():  # its client has gone
            return
        if "refused" in answer:
            future.set_exception(OpscopeError(answer["refused"]))
        elif "failed" in answer:
            future.set_exception(WorkerError(answer["failed"]))
        else:
            future.set_result(answer["value"])

    def connection_lost(self, error: Exception | None) -> None:
        self.alive = False
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EndedError(_ENDED))
        self._waiting.clear()
        # It ends when it finds the socket closed, which is done after this call.
        self._reaping = asyncio.ensure_future(self._reap())
        self._reaping.add_done_callback(lambda _: self._gone.set_result(None))

    async def _reap(self) -> None:
        """Wait until it has ended; kill it, if that takes too long."""
        loop = asyncio.get_running_loop()
        last = loop.time() + _ENDING
        while True:
            pid, status = self._pid, 0
            with suppress(ChildProcessError):  # the system has waited, where SIGCHLD is ignored
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                break
            if loop.time() > last:
                os.kill(self._pid, signal.SIGKILL)
            await asyncio.sleep(_POLL)
        if not self._ending:
            code = os.waitstatus_to_exitcode(status)
            why = f" by signal {-code}" if code < 0 else ""
            _log.error("process %d of the server ended%s: its streams are lost", self._pid, why)
