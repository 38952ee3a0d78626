"""A worker: tasks of clients, done in lanes; and its life as a process that is forked.

Messages of the server to a process: two lengths, JSON, bytes. Its answers: a length, JSON.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import Any

from ...framework.base.errors import OpscopeError
from ...framework.base.python.bounded_cache import give_back
from ...framework.base.python.cached import new_lock
from ..ctc.model import CtcModel
from ..recognize.transcript import AnyModel, listener_of
from .lanes import Lanes
from .options import ServerOptions
from .session import Reply, Session, is_end
from .tasks import Recording, Sound

_log = logging.getLogger(__name__)
_TRIMMED = 50
"""Tasks after whose end free memory is given back: else the C library keeps it for the threads of
lanes, some MB a stream."""
TASKS: dict[str, Callable[..., Any]] = {
    "stream": Session,
    "recording": Recording,
    "sound": Sound,
}
"""Kinds of tasks; each takes the model and the options of sessions. `held` are the seconds of sound
that its next call may have to hear at once."""
_ENDS = "end", "finish"  # methods after which a client waits for the last word
_OBJECTS = 20_000  # new ones, from one collection of garbage to the next
REQUEST = Struct(">QQ")
ANSWER = Struct(">I")


class Worker:
    """Does tasks of clients.

    Args:
        model: that recognizes. options: of the server. cores: to compute on.

    Raises:
        OpscopeError: speakers are to be told by a CTC model.
    """

    def __init__(self, model: AnyModel, options: ServerOptions, cores: int) -> None:
        self._model = model
        self._options = options
        self._tasks: dict[int, Any] = {}
        self._held: dict[int, float] = {}  # by tasks that are computed now
        self._dropped = 0
        network = None if isinstance(model, CtcModel) else model.network
        if network is None:  # it refuses speakers; a server must not do so to each of its clients
            listener_of(model, options.session.rate, speakers=options.session.speakers)
        self._lanes = Lanes(network, cores=cores, most=options.batch)
        self._lanes.prepare()

    def open(self, number: int, kind: str, settings: dict[str, Any]) -> None:
        """Begin a task under a number."""
        self._tasks[number] = TASKS[kind](self._model, self._options.session, **settings)

    def call(self, number: int, method: str, *values: Any) -> Future[Any]:
        """Do something for a task; the value is one that JSON has.

        The end of a stream or of sound is urgent: its client waits for the last word.
        """
        last = values[-1] if values else None
        urgent = method in _ENDS or (isinstance(last, str) and is_end(last))
        return self._lanes.submit(partial(self._called, number, method, values), urgent=urgent)

    def drop(self, number: int) -> None:
        """End a task, whatever is still to be done for it."""
        self._tasks.pop(number, None)
        self._dropped += 1
        if self._dropped % _TRIMMED == 0:
            self._lanes.submit(give_back)

    def counts(self) -> dict[str, int]:
        """Values of metrics, and by which others see that work goes on."""
        lanes = self._lanes
        return {
            "turns": lanes.turns,
            "running": lanes.running,
            "held": math.ceil(max([*self._held.values()], default=0)),
            "work_waiting": lanes.waiting,
            "network_runs_total": lanes.runs,
            "network_chunks_total": lanes.chunks,
        }

    def close(self) -> None:
        """Do what was submitted, and end the threads."""
        self._lanes.close()

    def _called(self, number: int, method: str, values: tuple[Any, ...]) -> Any:
        task = self._tasks.get(number)
        if task is None:
            return None
        self._held[number] = task.held
        try:
            value = getattr(task, method)(*values)
        finally:
            self._held.pop(number, None)
        return vars(value) if isinstance(value, Reply) else value


def fork(worker: Worker) -> tuple[int, socket.socket]:
    """Fork a process that does what comes over a socket, until that is closed.

    Memory is shared as long as neither side writes to it.

    Returns:
        Its number, and the server's end of the socket.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    try:
        _live(worker, theirs)
    except BaseException:
        _log.exception("a process of the server failed")
    finally:
        os._exit(0)


def _live(worker: Worker, channel: socket.socket) -> None:
    """Be a worker: what the server has open and what it does at signals is not for this process."""
    signal.set_wakeup_fd(-1)
    for name in (signal.SIGTERM, signal.SIGINT):  # the server ends it
        signal.signal(name, signal.SIG_IGN)
    gc.freeze()  # else collections would write to all that is shared
    gc.set_threshold(_OBJECTS)  # lattices are of many small ones
    _close_others(channel.fileno())
    answers = _Answers(channel)
    # The server may end amid a message, and while answers are on their way.
    with channel.makefile("rb") as requests, suppress(ConnectionError):
        while len(head := requests.read(REQUEST.size)) == REQUEST.size:
            length, size = REQUEST.unpack(head)
            request, data = requests.read(length), requests.read(size)
            if len(request) + len(data) < length + size:
                return
            _do(worker, answers, json.loads(request), data)


def _do(worker: Worker, answers: _Answers, request: list[Any], data: bytes) -> None:
    """Do what a message says: its number, what, whether the bytes are an argument, arguments."""
    call, what, has_data, *rest = request
    if what == "open":
        worker.open(*rest)
    elif what == "drop":
        worker.drop(*rest)
    elif what == "counts":
        answers.send({"call": call, "value": worker.counts()})
    else:
        values = [*rest, data] if has_data else rest
        worker.call(*values).add_done_callback(partial(answers.give, call))


class _Answers:
    """Sends answers, from any thread."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = new_lock()

    def give(self, call: int, future: Future[Any]) -> None:
        """Send what has come of a call."""
        try:
            self.send({"call": call, "value": future.result()})
        except OpscopeError as error:
            self.send({"call": call, "refused": str(error)})
        except Exception as error:
            _log.exception("a call failed")
            self.send({"call": call, "failed": f"{type(error).__name__}: {error}"})

    def send(self, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        with self._lock, suppress(ConnectionError):  # the server may be gone
            self._channel.sendall(ANSWER.pack(len(data)) + data)


def _close_others(kept: int) -> None:
    """Close files and sockets of the server: a client must not find its connection open here."""
    try:
        most = max(map(int, os.listdir("/proc/self/fd")))
    except OSError:
        most = os.sysconf("SC_OPEN_MAX")  # of which there may be a billion
    os.closerange(3, kept)
    os.closerange(kept + 1, most + 1)
