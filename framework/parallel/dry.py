"""Ranks without a network: as threads of this process, or one that stands for all of them.

    world = DryWorld(4)
    results = world.run(train_one_rank)   # train_one_rank(communicator) runs in four threads

Messages are recorded, and the time that they would take over a `Link` is added up, not waited for.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ..base.backend import array_module
from ..base.communicator import (
    FAILED,
    Communicator,
    LocalArray,
    Message,
    Request,
    SharedArray,
    check_root,
    sum_in_order,
)
from ..base.errors import RanksError
from .link import Link

Result = TypeVar("Result")


class RecordingCommunicator(Communicator):
    """What both kinds have in common: a log of messages and a simulated clock.

    Attributes:
        messages: every exchange so far. seconds: what they would take over the link.
    """

    def __init__(self, rank: int, size: int, link: Link) -> None:
        super().__init__(rank, size)
        self.messages: list[Message] = []
        self.seconds = 0.0
        self._link = link

    def record(self, kind: str, nbytes: int) -> None:
        """Note an exchange."""
        self.messages.append(Message(kind, self.operator, nbytes))
        self.seconds += self._link.seconds(kind, nbytes, self.size)


class EchoCommunicator(RecordingCommunicator):
    """One rank that stands for all: what the others send is taken to equal what it sends itself.

    It lets one process run a step as a rank of thousands would, with the messages of that step.
    """

    kind = "echo"

    def __init__(self, size: int, link: Link | None = None) -> None:
        if size < 1:
            raise RanksError(f"there must be at least one rank, not {size}")
        super().__init__(0, size, link or Link())

    def start_all_reduce(self, array: Any) -> Request:
        self.record("all_reduce", array.nbytes)
        return Request(lambda: array_module(array).multiply(array, self.size, out=array))

    def start_reduce_scatter(self, array: Any, out: Any) -> Request:
        self.record("reduce_scatter", array.nbytes)
        return Request(lambda: array_module(out).multiply(array[self.rank], self.size, out=out))

    def all_gather(self, array: Any, out: Any) -> None:
        self.record("all_gather", array.nbytes)
        out[...] = array

    def broadcast(self, array: Any, root: int = 0) -> None:
        check_root(root, self)
        self.record("broadcast", array.nbytes)

    def exchange(self, data: bytes) -> list[bytes]:
        self.record("exchange", len(data))
        return [data] * self.size

    def check(self) -> None:
        return  # there is no other rank to hear from

    def fail(self, error: BaseException) -> None:
        return  # there is no other rank to report to

    def close(self) -> None:
        return


@dataclass
class _Meeting:
    """One exchange: what the ranks have brought so far, and what comes out when all have."""

    kind: str
    brought: dict[int, Any] = field(default_factory=dict)
    result: Any = None
    left: int = 0


class DryWorld:
    """Ranks that are threads of this process.

    Args:
        size: how many there are. link: what their messages are said to go over.
    """

    def __init__(self, size: int, link: Link | None = None) -> None:
        if size < 1:
            raise RanksError(f"there must be at least one rank, not {size}")
        self.size = size
        self.link = link or Link()
        self._changed = threading.Condition()
        self._meetings: dict[int, _Meeting] = {}
        self._sent: defaultdict[tuple[int, int], deque[Any]] = defaultdict(deque)
        self._ended: dict[int, str] = {}  # rank -> why it takes part no more

    def run(self, function: Callable[[DryCommunicator], Result]) -> list[Result]:
        """The results of `function(communicator)` on all ranks, each in a thread of its own.

        Raises:
            BaseException: of the first rank that failed; the other ranks have ended then.
        """
        results: list[Any] = [None] * self.size
        errors: list[BaseException] = []

        def one_rank(rank: int) -> None:
            try:
                with DryCommunicator(self, rank) as communicator:
                    results[rank] = function(communicator)
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(
                target=copy_context().run, args=(one_rank, rank), name=f"rank {rank}", daemon=True
            )
            for rank in range(self.size)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # RanksErrors last: they are what others said of the first failure.
        for error in sorted(errors, key=lambda error: isinstance(error, RanksError)):
            raise error  # what it began with, where there is that
        return results

    def end(self, rank: int, why: str) -> None:
        """Note that a rank takes part no more; who waits for it gets the reason."""
        with self._changed:
            self._ended.setdefault(rank, why)
            self._changed.notify_all()

    def check(self, rank: int) -> None:
        """Raise what another rank has ended by."""
        with self._changed:
            for other, why in self._ended.items():
                if other != rank:
                    raise RanksError(why)

    def bring(
        self, communicator: DryCommunicator, number: int, kind: str, value: Any, join: Any
    ) -> None:
        """Bring a rank's part of exchange `number`; the last to come computes `join(parts)`."""
        with self._changed:
            meeting = self._meetings.setdefault(number, _Meeting(kind))
            if meeting.kind != kind:
                other = min(meeting.brought)
                raise RanksError(
                    f"rank {communicator.rank} wants {kind} where rank {other} wants {meeting.kind}"
                )
            meeting.brought[communicator.rank] = value
            if len(meeting.brought) == self.size:
                # In the order of ranks, whoever came last: the same bits in every run.
                meeting.result = join([meeting.brought[rank] for rank in range(self.size)])
                self._changed.notify_all()

    def put(self, array: Any, source: int, to: int) -> None:
        """Leave an array for rank `to`."""
        with self._changed:
            self._sent[source, to].append(array)
            self._changed.notify_all()

    def take(self, communicator: DryCommunicator, source: int) -> Any:
        """The next array that rank `source` has left for a rank, once it is there."""
        with self._changed:
            waiting = self._sent[source, communicator.rank]
            while not waiting:
                # Whichever rank has failed: the one that is waited for may wait for it as well.
                ends = [why for why in self._ended.values() if FAILED in why]
                ends += [self._ended[source]] if source in self._ended else []
                if ends:
                    raise RanksError(_ended_before(communicator, source, ends[0]))
                self._changed.wait()
            return waiting.popleft()

    def fetch(self, communicator: DryCommunicator, number: int) -> Any:
        """The result of exchange `number`, when all ranks have brought their parts."""
        with self._changed:
            meeting = self._meetings[number]
            while len(meeting.brought) < self.size:
                for rank, why in self._ended.items():
                    if rank not in meeting.brought:
                        raise RanksError(_ended_before(communicator, rank, why, meeting.kind))
                self._changed.wait()
            meeting.left += 1
            if meeting.left == self.size:
                # The last to fetch removes it: a long training would keep all sums.
                del self._meetings[number]
            return meeting.result


class DryCommunicator(RecordingCommunicator):
    """A rank of a `DryWorld`."""

    kind = "dry"

    def __init__(self, world: DryWorld, rank: int) -> None:
        super().__init__(rank, world.size, world.link)
        self._world = world
        self._number = 0

    def _bring(self, kind: str, nbytes: int, value: Any, join: Any) -> int:
        self.record(kind, nbytes)
        self._number += 1
        self._world.bring(self, self._number, kind, value, join)
        return self._number

    def start_all_reduce(self, array: Any) -> Request:
        # A copy: the rank goes on and may write to its own array before the last one has come.
        number = self._bring("all_reduce", array.nbytes, array.copy(), _sum)

        def finish() -> None:
            array[...] = self._world.fetch(self, number)

        return Request(finish)

    def start_reduce_scatter(self, array: Any, out: Any) -> Request:
        number = self._bring("reduce_scatter", array.nbytes, array.copy(), _sum)

        def finish() -> None:
            out[...] = self._world.fetch(self, number)[self.rank]

        return Request(finish)

    def all_gather(self, array: Any, out: Any) -> None:
        number = self._bring("all_gather", array.nbytes, array.copy(), list)
        for place, part in enumerate(self._world.fetch(self, number)):
            out[place] = part

    def broadcast(self, array: Any, root: int = 0) -> None:
        check_root(root, self)
        number = self._bring("broadcast", array.nbytes, array.copy(), lambda parts: parts[root])
        array[...] = self._world.fetch(self, number)

    def exchange(self, data: bytes) -> list[bytes]:
        number = self._bring("exchange", len(data), data, list)
        return list(self._world.fetch(self, number))

    def send(self, array: Any, to: int) -> None:
        check_root(to, self)
        self.record("send", array.nbytes)
        self._world.put(array.copy(), self.rank, to)

    def receive(self, out: Any, source: int) -> None:
        check_root(source, self)
        array = self._world.take(self, source)
        if (array.size, array.dtype) != (out.size, out.dtype):
            raise RanksError(
                f"{self.operator or 'an exchange'} of rank {self.rank} wants"
                f" {out.dtype}{list(out.shape)}, and rank {source} has sent"
                f" {array.dtype}{list(array.shape)}"
            )
        out[...] = array.reshape(out.shape)

    def share(self, array: np.ndarray) -> SharedArray:
        # All get the array that the last one to come has made.
        number = self._bring("share", array.nbytes, array, lambda parts: LocalArray(parts[0]))
        return self._world.fetch(self, number)

    def check(self) -> None:
        self._world.check(self.rank)

    def fail(self, error: BaseException) -> None:
        self._world.end(self.rank, self.describe_failure(error))

    def close(self) -> None:
        self._world.end(self.rank, f"rank {self.rank} of {self.size} has finished")


def _ended_before(ranks: Communicator, other: int, why: str, kind: str = "receive") -> str:
    return f"{why}; {ranks.operator or kind} of rank {ranks.rank} waits for rank {other}"


def _sum(parts: list[Any]) -> Any:
    if any(part.shape != parts[0].shape for part in parts):
        shapes = ", ".join(str(np.shape(part)) for part in parts)
        raise RanksError(f"a sum over ranks: their shapes differ: {shapes}")
    out = array_module(parts[0]).empty_like(parts[0])
    sum_in_order(parts, out)
    return out
