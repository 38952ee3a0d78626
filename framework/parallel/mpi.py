"""Ranks that are processes of an MPI program.

Sums take two steps, so that each byte travels as often as in a ring and the order of ranks is kept:
every rank gets one piece of the arrays of all (MPI_Ialltoallv), adds these in order, and the sums
are gathered (MPI_Iallgatherv). Waiting is done by testing, so that a rank that waits hears that
another has failed, and can be interrupted.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any

import numpy as np

from ..base.backend import copy_into, to_host
from ..base.communicator import (
    FAILED,
    Communicator,
    Request,
    SharedArray,
    check_root,
    sum_in_order,
)
from ..base.errors import OpscopeError, RanksError
from ..base.machine.processes import ends_with_parent, is_alive, wait_until_read
from .launched import RollCall, seconds_of

_SMALL = 1 << 14
"""Bytes up to which all ranks get the whole arrays of all and add them themselves: one step."""
_SPIN = 0.5
"""Seconds of waiting without pauses, in which a message goes on as fast as it can: it is MPI's
tests that move it."""
_PAUSE, _LONGEST_PAUSE = 50e-6, 0.01
_give_way = getattr(os, "sched_yield", partial(time.sleep, 0))
"""Lets another process run that waits for this core; `time.sleep(0)` would take a pause."""
_LISTEN = 1e-3
"""Seconds between looks whether another rank has ended."""
_GRACE = 3.0
"""Seconds that ranks have to end by themselves after one has failed."""
_TO_REPORT = 30.0
"""The same while one that failed has not written why: on a busy machine that takes its time."""
_SAME_TIME = 1.5
"""Seconds in which ranks that fail by the same cause tell each other of it."""
_LAST_TIME = 0.2
"""Seconds in which the last exchanges with a rank that has ended come to their end."""
_LOOK_FOR_DEAD = 0.5
"""Seconds between looks whether the processes of this machine are alive."""
_TO_READ = 5.0
"""Seconds that the launcher has to read what a rank has written, before anything is ended."""
_LAST_WORD = 0.2
"""Seconds in which the notice of a process that is gone already comes through."""


def _mpi() -> Any:
    """The module mpi4py.MPI.

    Raises:
        OpscopeError: it, or an MPI library, is not installed.
    """
    # The message that names rank and operator is ours; MPICH would add one for each rank.
    os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")
    try:
        return import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise OpscopeError(
            f"ranks over MPI want mpi4py and an MPI library: pip install opscope[mpi] ({error})"
        ) from None


class MpiCommunicator(Communicator):
    """This process as a rank of the MPI program that it was started in (`mpiexec -n 4 ...`).

    Only the failing rank writes a message; all end with an exit code other than 0, within five
    seconds of it. Those that do not end by themselves by then are ended by MPI_Abort.

    Args:
        comm: an mpi4py communicator; None means MPI.COMM_WORLD.

    Raises:
        OpscopeError: mpi4py is not installed.
    """

    kind = "mpi"

    def __init__(self, comm: Any = None) -> None:
        self._roll_call = RollCall()
        self._patience = patience()
        # MPI waits for all ranks while it starts, and forever for one that a signal has killed
        # together with MPICH's launcher, which has one thread and is the parent of ranks.
        with ends_with_parent() if "PMI_FD" in os.environ else nullcontext():
            self._mpi = _mpi()
            comm = self._mpi.COMM_WORLD if comm is None else comm
            super().__init__(comm.Get_rank(), comm.Get_size())
            # First steps, second steps, notices and arrays for one rank do not meet: each has its
            # own communicator.
            self._data = comm.Dup()
            self._second = comm.Dup()
            self._notices = comm.Dup()
            self._direct = comm.Dup()  # from one rank to one other
        self._sums: deque[_Sum] = deque()  # under way, first started first
        self._buffers: dict[int, list[np.ndarray]] = {}
        self._ended: dict[int, str] = {}  # rank -> why it takes part no more
        self._have_reported: set[int] = set()  # ranks that failed and have written why
        self._sent: list[Any] = []
        self._under_way: list[tuple[Any, np.ndarray]] = []  # what was sent to one rank
        self._own_end = ""
        # By machine and process a rank can look whether a neighbor is alive; one on another machine
        # it can only wait for, as for any that has not told yet.
        self._processes: list[tuple[str, int]] = []
        own = json.dumps([platform.node(), os.getpid()]).encode()
        self._processes = [tuple(json.loads(part)) for part in self.exchange(own)]
        self._roll_call.note("met")
        self._hook = sys.excepthook
        sys.excepthook = self._uncaught
        atexit.register(self._at_exit)

    # -- exchanges -------------------------------------------------------------------------------

    def start_all_reduce(self, array: Any) -> Request:
        if not isinstance(array, np.ndarray):
            return self._start_from_device(array)
        if not array.flags.c_contiguous:
            raise RanksError(f"a sum wants a contiguous array, not one of strides {array.strides}")
        self._advance()
        one = _Sum(self, array.reshape(-1))
        self._sums.append(one)
        return Request(one.finish)

    def start_reduce_scatter(self, array: Any, out: Any) -> Request:
        if not (array.flags.c_contiguous and out.flags.c_contiguous):
            raise RanksError("a sum that is scattered wants contiguous arrays")
        host, part = np.ascontiguousarray(to_host(array)), out
        if not isinstance(out, np.ndarray):
            part = np.empty(out.shape, out.dtype)
        self._advance()
        one = _Sum(self, host.reshape(-1), part)
        self._sums.append(one)

        def finish() -> None:
            one.finish()
            if part is not out:
                copy_into(out, part)

        return Request(finish)

    def _start_from_device(self, array: Any) -> Request:
        host = np.ascontiguousarray(to_host(array))
        request = self.start_all_reduce(host)

        def finish() -> None:
            request.wait()
            copy_into(array, host.reshape(array.shape))

        return Request(finish)

    def _advance(self) -> None:
        """Give sums that are under way a push, in the order in which they began."""
        for one in self._sums:
            # In the order in which they began on all ranks: second steps are matched by their
            # order.
            if not one.advance():
                break

    def finish_sums(self, last: _Sum) -> None:
        """Bring all sums to their end up to `last`."""
        while last in self._sums:
            one = self._sums[0]
            self.wait(one.step)
            if one.advance():
                self._sums.popleft()

    def all_gather(self, array: Any, out: Any) -> None:
        own = np.ascontiguousarray(to_host(array))
        parts = out if isinstance(out, np.ndarray) else np.empty(out.shape, own.dtype)
        if not parts.flags.c_contiguous:
            parts = np.empty(out.shape, own.dtype)
        self.wait(self._data.Iallgather(_bytes(own), _bytes(parts)))
        if parts is not out:
            copy_into(out, parts)

    def broadcast(self, array: Any, root: int = 0) -> None:
        check_root(root, self)
        own = np.ascontiguousarray(to_host(array))
        self.wait(self._data.Ibcast(_bytes(own), root))
        if self.rank != root:
            copy_into(array, own.reshape(array.shape))

    def exchange(self, data: bytes) -> list[bytes]:
        sizes = np.empty(self.size, np.int64)
        self.wait(self._data.Iallgather(np.array([len(data)]), sizes))
        out = np.empty(int(sizes.sum()), np.uint8)
        starts = sizes.cumsum() - sizes
        layout = [out, sizes.tolist(), starts.tolist(), self._mpi.BYTE]
        self.wait(self._data.Iallgatherv(np.frombuffer(data, np.uint8), layout))
        return [out[a : a + n].tobytes() for a, n in zip(starts, sizes, strict=True)]

    def send(self, array: Any, to: int) -> None:
        check_root(to, self)
        self._under_way = [one for one in self._under_way if not one[0].Test()]
        # A copy, which MPI reads until the other rank has all of it.
        own = np.array(to_host(array), order="C")
        self._under_way.append((self._direct.Isend([_bytes(own), self.byte], to, 0), own))

    def receive(self, out: Any, source: int) -> None:
        check_root(source, self)
        own = out
        if not (isinstance(out, np.ndarray) and out.flags.c_contiguous):
            own = np.empty(out.shape, out.dtype)
        self.wait(self._direct.Irecv([_bytes(own), self.byte], source, 0))
        if own is not out:
            copy_into(out, own)

    def share(self, array: np.ndarray) -> SharedArray:
        return _Window(self, array)

    @property
    def mpi(self) -> Any:
        """The module mpi4py.MPI."""
        return self._mpi

    @property
    def data(self) -> Any:
        """The mpi4py communicator of exchanges."""
        return self._data

    def take_buffer(self, nbytes: int) -> np.ndarray:
        """Memory for one sum, used again by later ones."""
        free = self._buffers.setdefault(nbytes, [])
        return free.pop() if free else np.empty(nbytes, np.uint8)

    def give_buffer(self, buffer: np.ndarray) -> None:
        """Hand memory back."""
        self._buffers[buffer.nbytes].append(buffer)

    def data_step(self, send: Any, receive: Any) -> Any:
        """The first step of a sum, as an MPI request."""
        return self._data.Ialltoallv(send, receive)

    def whole_step(self, send: np.ndarray, receive: np.ndarray) -> Any:
        """The only step of a small sum."""
        return self._data.Iallgather(send, receive)

    def second_step(self, receive: Any) -> Any:
        """The second step of a sum; second steps begin in the order of their sums."""
        return self._second.Iallgatherv(self._mpi.IN_PLACE, receive)

    @property
    def byte(self) -> Any:
        """MPI's type of a byte."""
        return self._mpi.BYTE

    def wait(self, request: Any) -> None:
        """Wait for an MPI request; whoever hears of an end that it would wait for for ever, fails.

        Raises:
            RanksError: another rank has failed, ended, or its process is gone.
        """
        if request.Test():
            return
        began = heard = looked = time.perf_counter()
        while not request.Test():
            now = time.perf_counter()
            if now - began < _SPIN:
                _give_way()
            else:
                time.sleep(_PAUSE)
            if now - heard < _LISTEN:
                continue
            heard = now
            self._hear()
            if self._ended and not request.Test():
                self._end_with_others(request)
            if self._patience and now - began > self._patience:
                raise RanksError(
                    f"{self.operator or 'an exchange'} of rank {self.rank} has waited"
                    f" {self._patience:g} s for the other ranks (--timeout, OPSCOPE_RANKS_WAIT)"
                )
            if now - looked > _LOOK_FOR_DEAD:
                looked = now
                self._look_for_dead()

    # -- ends ------------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Read the notices of ranks that have ended."""
        status = self._mpi.Status()
        while self._notices.Iprobe(self._mpi.ANY_SOURCE, 1, status):
            data = bytearray(status.Get_count(self.byte))
            self._notices.Recv([data, self.byte], status.Get_source(), 1)
            if data:
                self._ended[status.Get_source()] = data.decode()
            else:
                # An empty notice: what is printed comes after the failure itself, and the others
                # wait for it before they abort.
                self._have_reported.add(status.Get_source())

    def _end_with_others(self, request: Any) -> None:
        """Raise what others have ended by, unless the exchange comes to its end without them.

        A rank that has finished may have left its part of the last exchanges unread.
        """
        for _ in _pauses(_LAST_TIME):
            if request.Test():
                return
        self._hear()
        rank, why = min(self._ended.items(), key=lambda end: (FAILED not in end[1], end))
        doing = self.operator or "an exchange"
        raise RanksError(f"{why}; {doing} of rank {self.rank} waits for rank {rank}")

    def _look_for_dead(self) -> None:
        """Notice processes of this machine that are gone without a word, killed for example."""
        for rank, (node, process) in enumerate(self._processes):
            here = node == self._processes[self.rank][0]
            if rank != self.rank and here and rank not in self._ended:
                if not is_alive(int(process)):
                    self._hear_from(rank, _LAST_WORD)  # its notice may not have been read yet
                    if rank in self._ended:
                        return
                    self._let_another_tell(rank)
                    self._ended.setdefault(
                        rank, f"rank {rank} of {self.size}, process {process} of {node}, is gone"
                    )

    def _let_another_tell(self, gone: int) -> None:
        """Give the lowest rank that is left time to report one that is gone: one is enough."""
        lowest = min(rank for rank in range(self.size) if rank != gone and rank not in self._ended)
        if lowest != self.rank:
            self._hear_from(lowest, 2 * _LOOK_FOR_DEAD)

    def _hear_from(self, rank: int, seconds: float) -> None:
        """Wait a little for a word of a rank."""
        until = time.perf_counter() + seconds
        self._hear()
        while rank not in self._ended and time.perf_counter() < until:
            time.sleep(0.01)
            self._hear()

    def check(self) -> None:
        self._hear()
        if self._ended:
            raise RanksError(min(self._ended.values(), key=_finished_last))

    def fail(self, error: BaseException) -> None:
        if self._own_end or self.size == 1:
            return
        self._hear()
        if isinstance(error, (OpscopeError, KeyboardInterrupt)):
            # The program's own handler need not print what this one has printed.
            vars(error)["told"] = True
        if self._failed(self.size):
            self._own_end = f"rank {self.rank} of {self.size} has ended with it"
            self._tell(self._own_end)
        else:
            self._own_end = self.describe_failure(error)
            self._tell(self._own_end)
            for_all = isinstance(error, RanksError) and error.on_all and self.rank > 0
            if not (for_all or self._lower_tells()):
                message = f"opscope: {self._own_end}\n"
                if not isinstance(error, (OpscopeError, KeyboardInterrupt)):
                    message = "".join(traceback.format_exception(error)) + message
                print(message, end="", file=sys.stderr, flush=True)
                wait_until_read(2, _TO_READ)  # the notice below lets the others abort
            self._tell("")
        watchdog = threading.Timer(self._grace() + 1, self._abort)
        # A rank may hang in MPI after its error; this thread ends it then, and does not keep it
        # alive otherwise.
        watchdog.daemon = True
        watchdog.start()

    def _failed(self, below: int) -> bool:
        """Whether a rank below a number has failed, as far as is known."""
        return any(FAILED in why for rank, why in self._ended.items() if rank < below)

    def _lower_tells(self) -> bool:
        """Whether a lower rank has failed by itself at the same time: one message is enough."""
        for _ in _pauses(_SAME_TIME):
            self._hear()
            if all(n in self._ended for n in range(self.rank)):
                break
        return self._failed(self.rank)

    def close(self) -> None:
        if not self._own_end:
            self._own_end = f"rank {self.rank} of {self.size} has finished"
            self._tell(self._own_end)

    def _tell(self, why: str) -> None:
        data = why.encode()
        for rank in range(self.size):
            if rank != self.rank:
                self._sent.append(self._notices.Isend([data, self.byte], rank, 1))

    def _uncaught(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """What Python calls for an uncaught exception."""
        if self.size == 1:
            self._hook(kind, error, trace)
        elif not self._own_end or " has finished" in self._own_end:
            self._own_end = ""
            self.fail(error)

    def _at_exit(self) -> None:
        """Before MPI is finalized, which would wait for ranks that do not come any more."""
        self.close()
        self._hear()
        if self._patience and " has finished" in self._own_end:
            self._wait_for_ends()
        self._roll_call.note("ended")
        ends = [self._own_end, *self._ended.values()]
        if all(" has finished" in why for why in ends):
            return
        began = time.perf_counter()
        while not self._all_is_reported() and time.perf_counter() - began < self._grace():
            time.sleep(0.01)
            self._hear()
        self._abort()

    def _wait_for_ends(self) -> None:
        """Fail if the other ranks do not end either; MPI would wait for them for ever."""
        until = time.perf_counter() + self._patience
        while len(self._ended) < self.size - 1 and time.perf_counter() < until:
            time.sleep(0.01)
            self._hear()
            self._look_for_dead()
        missing = [n for n in range(self.size) if n != self.rank and n not in self._ended]
        if missing:
            self._own_end = ""
            self.fail(
                RanksError(
                    f"rank {self.rank} is done, and has waited {self._patience:g} s for"
                    f" rank {', '.join(map(str, missing))} (--timeout, OPSCOPE_RANKS_WAIT)"
                )
            )

    def _all_is_reported(self) -> bool:
        """Whether all ranks have ended, and those that failed have written why."""
        return len(self._ended) == self.size - 1 and not self._are_reporting()

    def _are_reporting(self) -> bool:
        """Whether a rank that failed has not written yet why."""
        failed = {rank for rank, why in self._ended.items() if FAILED in why}
        return not failed <= self._have_reported

    def _grace(self) -> float:
        """Seconds that ranks have to end by themselves."""
        return _TO_REPORT if self._are_reporting() else _GRACE

    def _abort(self) -> None:
        for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
            stream.flush()
            wait_until_read(descriptor, _TO_READ)
        # MPICH adds a line of its own from each rank, whatever its settings for messages are.
        os.dup2(os.pipe()[1], 2)
        self._mpi.COMM_WORLD.Abort(1)


class _Sum:
    """A sum under way.

    Args:
        flat: the array, which will hold the sum where there is no `part`.
        part: gets this rank's piece of the sum, one of `size` equal ones; None: all get the whole.

    Attributes:
        step: the MPI request of the step under way.
    """

    def __init__(
        self, ranks: MpiCommunicator, flat: np.ndarray, part: np.ndarray | None = None
    ) -> None:
        self._ranks = ranks
        self._flat = flat
        self._scatters = part is not None
        self._small = part is None and (flat.nbytes <= _SMALL or flat.size < ranks.size)
        size, item = ranks.size, flat.itemsize
        # Pieces of as equal lengths as can be; every rank computes the same bounds by itself.
        bounds = [flat.size * rank // size for rank in range(size + 1)]
        self._own = flat[bounds[ranks.rank] : bounds[ranks.rank + 1]] if part is None else part
        counts = [(b - a) * item for a, b in zip(bounds, bounds[1:], strict=False)]
        self._layout = [_bytes(flat), counts, [a * item for a in bounds[:-1]], ranks.byte]
        if self._small:
            self._buffer = ranks.take_buffer(size * flat.nbytes)
            self.step = ranks.whole_step(_bytes(flat), self._buffer)
        else:
            own = self._own.nbytes
            self._buffer = ranks.take_buffer(size * own)
            places = [rank * own for rank in range(size)]
            received = [self._buffer, [own] * size, places, ranks.byte]
            self.step = ranks.data_step(self._layout, received)
        self._on_second = False
        self._done = False

    def advance(self) -> bool:
        """Go on to the next step where the one under way has ended; whether all steps have."""
        if self._done:
            return True
        if not self.step.Test():
            return False
        if self._on_second:
            self._done = True
            return True
        out = self._flat if self._small else self._own
        parts = self._buffer.view(out.dtype).reshape(self._ranks.size, out.size)
        sum_in_order(list(parts), out.reshape(-1))
        self._ranks.give_buffer(self._buffer)
        if self._small or self._scatters:
            self._done = True
            return True
        self.step = self._ranks.second_step(self._layout)
        self._on_second = True
        return False

    def finish(self) -> None:
        """Return when the array holds the sum."""
        self._ranks.finish_sums(self)


class _Window(SharedArray):
    """A shared array, float32 or float64, of which each rank holds a piece that the others add to
    without it."""

    def __init__(self, ranks: MpiCommunicator, array: np.ndarray) -> None:
        self._ranks = ranks
        mpi = ranks.mpi
        self._type = {4: mpi.FLOAT, 8: mpi.DOUBLE}[array.itemsize]
        size, item = ranks.size, array.itemsize
        self._bounds = [array.size * rank // size for rank in range(size + 1)]
        own = array[self._bounds[ranks.rank] : self._bounds[ranks.rank + 1]]
        # At least one element: windows of no bytes are not alike in all libraries.
        self._window = mpi.Win.Allocate(max(own.nbytes, item), item, comm=ranks.data)
        held = np.frombuffer(self._window.tomemory(), array.dtype, own.size)
        self._window.Lock_all()
        held[...] = own
        self._window.Sync()
        ranks.barrier()  # before the others add to the piece

    def start_add(self, change: np.ndarray, out: np.ndarray) -> Request:
        total = self._ranks.mpi.SUM
        requests = []
        for rank, (a, b) in enumerate(zip(self._bounds, self._bounds[1:], strict=False)):
            if b > a:
                given, got = ([part[a:b], b - a, self._type] for part in (change, out))
                target = [0, b - a, self._type]
                requests.append(self._window.Rget_accumulate(given, got, rank, target, total))

        def finish() -> None:
            for request in requests:
                self._ranks.wait(request)
            out[...] += change  # what came is what was there before

        return Request(finish)

    def close(self) -> None:
        self._window.Unlock_all()
        self._window.Free()


def _pauses(seconds: float) -> Iterator[None]:
    """Pauses that take so long together; of one in which this process may not run, a little counts.

    Else a busy machine could let all the time go by without a look at what has come meanwhile.
    """
    while seconds > 0:
        began = time.perf_counter()
        time.sleep(_PAUSE)
        seconds -= min(time.perf_counter() - began, _LONGEST_PAUSE)
        yield


def patience() -> float:
    """Seconds that a rank waits for the others; 0: for ever.

    Raises:
        OpscopeError: the switch holds no such number.
    """
    return seconds_of("OPSCOPE_RANKS_WAIT", "a number of seconds; 0: for ever")


def _bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of a contiguous array, which MPI sends whatever they mean."""
    return array.reshape(-1).view(np.uint8)


def _finished_last(why: str) -> bool:
    """A key by which ends are sorted: one that has failed says more than one that has finished."""
    return " has finished" in why
