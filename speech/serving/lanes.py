"""Threads for the work of many streams, whose networks are computed together.

Each piece of work runs in a lane, a thread of its own; as many lanes run as there are cores. Work
that wants a chunk of the network gives its turn to another lane and waits. A turn that finds
nothing else to do takes all chunks that wait, and computes them in one run of the network. So
batches are large where there is much to do, and no chunk waits for others that may never come.

Work that is urgent, such as the end of a stream, whose client waits for the last word, comes before
other work, and its chunks wait for no others; but after some urgent turns other work has one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.options.settings import read_once
from ...framework.base.python.cached import new_lock
from ...nnet3.inference.looped_computer import LoopedComputer
from ...nnet3.inference.stream_batch import StreamBatch, StreamChunk, StreamState

Result = TypeVar("Result")
_Job = tuple[Callable[[], Any], "Future[Any]"]
_IN_ROW = 8  # urgent turns, until other work has one


class Lanes:
    """Does work of many streams, as much at a time as there are cores.

    Example:
        lanes = Lanes(model.network, cores=2)
        text = lanes.submit(partial(session.take, message)).result()

    Args:
        network: of a model; its streams that are made from now on are computed together while
            their work runs here. None: work computes what it wants by itself.
        cores: how many lanes run at a time. most: chunks in one run of the network.

    Attributes:
        runs, chunks: of the network, so far. turns: that lanes have got so far. running: lanes that
            have one.
    """

    def __init__(self, network: LoopedComputer | None, *, cores: int, most: int = 32) -> None:
        self._most = most
        self._cores = cores
        self._lock = new_lock()
        self.running = 0
        self._count = 0
        self._urgent, self._other = _Queues(), _Queues()
        self._in_row = 0  # urgent turns, since other work had one
        self._idle: list[_Lane] = []
        self._leading = False  # a lane computes the network
        self._closed = False
        self.runs = self.chunks = self.turns = 0
        self._batch = None if network is None else StreamBatch(network, most)
        if network is not None:
            network.runners = self._runner

    def prepare(self) -> None:
        """Compile the network for all numbers of streams, so that no stream waits for it."""
        if self._batch is not None:
            self._batch.prepare()

    def submit(self, work: Callable[[], Result], *, urgent: bool = False) -> Future[Result]:
        """Do this as soon as there is a turn; work is begun in the order in which it comes.

        Args:
            urgent: before work that is not.

        Raises:
            OpscopeError: the lanes are closed.
        """
        future: Future[Result] = Future()
        with self._lock:
            if self._closed:
                raise OpscopeError("the lanes are closed")
            queues = self._urgent if urgent else self._other
            queues.jobs.append((work, future))
            self._start_next()
        return future

    @property
    def waiting(self) -> int:
        """Pieces of work that have not begun."""
        return len(self._urgent.jobs) + len(self._other.jobs)

    def close(self) -> None:
        """Do what was submitted, and end the threads."""
        with self._lock:
            self._closed = True
            self._start_next()

    # Inside

    def _runner(self) -> _Together:
        return _Together(self)

    def compute(self, chunk: StreamChunk) -> np.ndarray:
        """The output of a chunk, computed with others that wait; see `StreamBatch.compute`."""
        batch = self._batch
        assert batch is not None, "chunks are of streams of the network"
        lane = _here.__dict__.get("lane")
        if lane is None or lane.lanes is not self:  # work that was not submitted
            return batch.compute([chunk])[0]
        lane.chunk = chunk
        with self._lock:
            lane.queues.waiting.append(lane)
            self._give_turn()
        lane.go.acquire()
        if lane.led:
            self._lead(batch, lane)
        if lane.error is not None:
            error, lane.error = lane.error, None
            raise error
        return lane.output

    def _lead(self, batch: StreamBatch, lane: _Lane) -> None:
        """Compute the chunks of some lanes, the first of which is this one."""
        led, lane.led = lane.led, []
        error: Exception | None = None
        try:
            outputs = batch.compute([each.chunk for each in led])
            for each, output in zip(led, outputs, strict=True):
                each.output = output
        except Exception as raised:
            error = raised
        with self._lock:
            self._leading = False
            self.runs += 1
            self.chunks += len(led)
            for each in led:
                each.error = error
            for each in led[1:]:
                each.queues.computed.append(each)
            self._start_next()

    def _done(self, lane: _Lane) -> None:
        """A lane has done its work."""
        with self._lock:
            self._idle.append(lane)
            self._give_turn()

    def _give_turn(self) -> None:
        self.running -= 1
        self._start_next()

    def _start_next(self) -> None:
        """Give the turns that are free to lanes; the lock is held."""
        while self.running < self._cores and (lane := self._next()) is not None:
            self._in_row = self._in_row + 1 if lane.queues is self._urgent else 0
            self.running += 1
            self.turns += 1
            lane.go.release()
        if self._closed and not self.waiting:
            while self._idle:
                self._idle.pop().go.release()  # without a job it ends

    def _next(self) -> _Lane | None:
        """The lane that has the next turn; None: all of them wait."""
        first, second = self._urgent, self._other
        if self._in_row >= _IN_ROW:
            first, second = second, first
        lane = self._ready(first)
        if lane is not None:
            return lane
        if self._leading:
            return self._ready(second)
        if not (first.waiting or first.jobs):  # else only the network helps these
            lane = self._ready(second)
        return lane or self._leader(first.waiting, second.waiting)

    def _ready(self, queues: _Queues) -> _Lane | None:
        """A lane that can go on, or begin; None: there is none, or too many wait already."""
        if queues.computed:
            return queues.computed.popleft()
        if not queues.jobs or self._waiting >= self._most:
            return None
        lane = self._idle.pop() if self._idle else self._new_lane()
        lane.queues = queues
        lane.job = queues.jobs.popleft()
        return lane

    @property
    def _waiting(self) -> int:
        """Lanes that wait for the network."""
        return len(self._urgent.waiting) + len(self._other.waiting)

    def _leader(self, *waiting: deque[_Lane]) -> _Lane | None:
        """A lane that computes the network for others and itself; None: none waits."""
        led: list[_Lane] = []
        for lanes in waiting:
            while lanes and len(led) < self._most:
                led.append(lanes.popleft())
        if not led:
            return None
        self._leading = True
        led[0].led = led
        return led[0]

    def _new_lane(self) -> _Lane:
        self._count += 1
        lane = _Lane(self, f"opscope-lane-{self._count}")
        lane.start()
        return lane


@dataclass
class _Queues:
    """Of work that is urgent, or of work that is not.

    Attributes:
        jobs: that have not begun. waiting: lanes that wait for the network. computed: those that
            have got its output.
    """

    jobs: deque[_Job] = field(default_factory=deque)
    waiting: deque[_Lane] = field(default_factory=deque)
    computed: deque[_Lane] = field(default_factory=deque)


class _Lane(threading.Thread):
    """A thread that does one piece of work after another, when it has its turn.

    Attributes:
        go: released where it has a turn. job: what to do, and where the result goes. queues: of
            such work.
        chunk, output, error: of the network, of the work that waits. led: lanes whose chunks this
            one computes.
    """

    queues: _Queues
    chunk: StreamChunk
    output: np.ndarray

    def __init__(self, lanes: Lanes, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.lanes = lanes
        self.go = threading.Semaphore(0)
        self.job: _Job | None = None
        self.led: list[_Lane] = []
        self.error: Exception | None = None

    def run(self) -> None:
        _here.lane = self
        while True:
            self.go.acquire()
            if self.job is None:
                return
            (work, future), self.job = self.job, None
            if future.set_running_or_notify_cancel():
                try:
                    with read_once():
                        result = work()
                    future.set_result(result)
                    del result
                except BaseException as error:
                    future.set_exception(error)
            del work, future  # or a lane that waits would keep a stream
            self.lanes._done(self)


class _Together:
    """Runs the chunks of one stream in lanes; see `ChunkRunner`."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self.reset()

    def reset(self) -> None:
        """A new stream begins."""
        self._state = StreamState()

    def run(self, frames: np.ndarray, ivector: np.ndarray | None) -> np.ndarray:
        """The output of the next chunk."""
        return self._lanes.compute(StreamChunk(frames, ivector, self._state))


_here = threading.local()
