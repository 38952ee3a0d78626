"""Ranks that run the same list of operators together, and how they exchange arrays.

A rank is one of `size` runs of the same program, numbered from 0. Operators that exchange values
between ranks (operators/collective/) find their communicator in the context of the run:
`OpContext(communicator=...)`. This module holds the interface and the communicator of one rank;
framework/parallel/ has the communicators of several ranks.

Every rank must call the same methods in the same order. Sums are formed in the order of ranks,
((x0 + x1) + x2) + x3, so that all ranks get the same bits, whichever communicator adds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Any, Self

import numpy as np

from .backend import to_host
from .errors import OpscopeError, RanksError

FAILED = " has ended the run: "
"""What the message of a rank has that failed by itself; see `Communicator.describe_failure`."""


@dataclass(frozen=True)
class Message:
    """One exchange as a rank sees it.

    Attributes:
        kind: the method: `all_reduce`, `reduce_scatter`, `all_gather`, `broadcast`, `exchange` or
            `send`.
        operator: what asked for it, `op 12 (all_reduce)`; "" outside of a run.
        nbytes: what this rank puts in.
    """

    kind: str
    operator: str
    nbytes: int


class Request:
    """A sum that is under way; the array must not be touched before `wait` has returned."""

    def __init__(self, finish: Callable[[], None] | None = None) -> None:
        self._finish = finish

    def wait(self) -> None:
        """Let the array hold the sum over all ranks; a second call does nothing."""
        # Cleared before the call: a wait that raises must not be repeated on a broken exchange.
        finish = self._finish
        self._finish = None
        if finish is not None:
            finish()


class SharedArray(ABC):
    """An array that all ranks add to, each in its own time: what servers of parameters are for.

    Whoever adds gets what the array is then, with all that other ranks have added so far.
    """

    @abstractmethod
    def start_add(self, change: np.ndarray, out: np.ndarray) -> Request:
        """Begin to add `change`; once the request has been waited for, `out` holds the array with
        it. Neither must be touched before."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the array, as all ranks do."""


class Communicator(ABC):
    """The ranks that work together, seen from one of them; a context manager.

    Arrays are NumPy's or CuPy's, and equal in dtype and, where nothing else is said, in shape on
    all ranks. Every method may raise `RanksError` where another rank has failed or ended.

    Leaving the `with` block by an exception tells all other ranks, whose next or present exchange
    raises `RanksError`: an error, Ctrl-C or an early end on one rank ends all.

    Attributes:
        rank: the number of this rank. size: how many there are.
        operator: the operator that is exchanging values, for messages; operators set it.
        agreed: versions of nets on which all ranks have agreed (see parallel/handshake.py).
    """

    kind = ""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.operator = ""
        self.agreed: set[int] = set()
        self._pending: dict[str, tuple[Request, Any]] = {}

    def keep(self, ticket: str, request: Request, array: Any) -> None:
        """Keep a sum that is under way until `ticket`, a variable, is named again."""
        self._pending[ticket] = request, array

    def redeem(self, ticket: str) -> Any:
        """The array of a sum that was kept, when it holds the sum.

        Raises:
            RanksError: no such sum is under way.
        """
        if ticket not in self._pending:
            raise RanksError(f"no sum is under way with ticket {ticket!r}")
        request, array = self._pending.pop(ticket)
        request.wait()
        return array

    def all_reduce(self, array: Any) -> None:
        """Replace `array` by the sum over all ranks, in the order of ranks."""
        self.start_all_reduce(array).wait()

    @abstractmethod
    def start_all_reduce(self, array: Any) -> Request:
        """Begin to replace `array`, contiguous, by the sum over all ranks."""

    def reduce_scatter(self, array: Any, out: Any) -> None:
        """Fill `out`, [n], with this rank's row of the sum over all ranks of `array`, [size, n]."""
        self.start_reduce_scatter(array, out).wait()

    @abstractmethod
    def start_reduce_scatter(self, array: Any, out: Any) -> Request:
        """Begin to fill `out`, [n], with this rank's row of the sum over all ranks of `array`,
        [size, n]; both are contiguous, and rows are added in the order of ranks."""

    @abstractmethod
    def all_gather(self, array: Any, out: Any) -> None:
        """Fill `out`, [size, *shape of array], with the arrays of all ranks."""

    @abstractmethod
    def broadcast(self, array: Any, root: int = 0) -> None:
        """Replace `array` by the array of rank `root`."""

    @abstractmethod
    def exchange(self, data: bytes) -> list[bytes]:
        """The bytes of all ranks, by rank; their lengths may differ."""

    def send(self, array: Any, to: int) -> None:
        """Send `array` to rank `to`, which receives what a rank has sent in the order in which it
        was sent. Nothing waits, and the array may change as soon as this has returned.

        Raises:
            RanksError: there is no such rank, or ranks of this kind cannot.
        """
        raise RanksError(f"ranks of the kind {self.kind!r} send nothing to one rank alone")

    def receive(self, out: Any, source: int) -> None:
        """Fill `out` with what rank `source` has sent next to this one; dtype and size are equal.

        Raises:
            RanksError: as `send`; or that rank has ended.
        """
        raise RanksError(f"ranks of the kind {self.kind!r} receive nothing from one rank alone")

    def share(self, array: np.ndarray) -> SharedArray:
        """An array on the host, flat, that all ranks add to; at first it is `array`, which is the
        same on all ranks.

        Raises:
            RanksError: ranks of this kind cannot.
        """
        raise RanksError(f"ranks of the kind {self.kind!r} share no arrays")

    def all_gather_rows(self, array: Any) -> list[np.ndarray]:
        """The arrays of all ranks, by rank, on the host; their numbers of rows may differ."""
        # Bytes carry their own length, so the numbers of rows need no exchange of their own.
        own = np.ascontiguousarray(to_host(array))
        row = own.shape[1:]
        if 0 in row:  # no bytes say how many rows there are
            counts = self.exchange(len(own).to_bytes(8, "little"))
            return [np.empty((int.from_bytes(n, "little"), *row), own.dtype) for n in counts]
        parts = self.exchange(own.tobytes())
        return [np.frombuffer(part, own.dtype).reshape(-1, *row) for part in parts]

    def barrier(self) -> None:
        """Return when all ranks have come here."""
        self.exchange(b"")

    @abstractmethod
    def check(self) -> None:
        """Hear from the other ranks without waiting for them.

        Raises:
            RanksError: one has failed or ended.
        """

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """Tell all other ranks that this one ends by `error`."""

    @abstractmethod
    def close(self) -> None:
        """Tell all other ranks that this one takes part no more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # `sys.exit()` and `sys.exit(0)` end a program as planned; the other ranks need not fail.
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        else:
            self.fail(error)

    def describe_failure(self, error: BaseException) -> str:
        """The one message of a run that ends because this rank failed."""
        what = str(error)
        if not (what and isinstance(error, OpscopeError)):
            what = f"{type(error).__name__}: {what}" if what else type(error).__name__
        where = ""
        # An operator's own error names it already.
        if self.operator and self.operator not in what:
            where = f" (the last exchange was by {self.operator})"
        return f"rank {self.rank} of {self.size}{FAILED}{what}{where}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: rank {self.rank} of {self.size}>"


class LocalArray(SharedArray):
    """A shared array of ranks that are threads of this process, or of one alone."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array.copy()
        self._lock = Lock()

    def start_add(self, change: np.ndarray, out: np.ndarray) -> Request:
        with self._lock:
            self._array += change
            out[...] = self._array
        return Request()

    def close(self) -> None:
        return


class SingleCommunicator(Communicator):
    """One rank alone: every exchange leaves the values as they are."""

    kind = "single"

    def __init__(self) -> None:
        super().__init__(0, 1)

    def start_all_reduce(self, array: Any) -> Request:
        return Request()

    def start_reduce_scatter(self, array: Any, out: Any) -> Request:
        out[...] = array[0]
        return Request()

    def all_gather(self, array: Any, out: Any) -> None:
        out[0] = array

    def broadcast(self, array: Any, root: int = 0) -> None:
        check_root(root, self)

    def exchange(self, data: bytes) -> list[bytes]:
        return [data]

    def share(self, array: np.ndarray) -> SharedArray:
        return LocalArray(array)

    def check(self) -> None:
        return  # there is no other rank to hear from

    def fail(self, error: BaseException) -> None:
        return  # there is no other rank to report to

    def close(self) -> None:
        return


def check_root(root: int, ranks: Communicator) -> None:
    """Refuse a rank that is not there.

    Raises:
        RanksError: that is so.
    """
    if not 0 <= root < ranks.size:
        raise RanksError(f"there is no rank {root}: the ranks are 0 to {ranks.size - 1}")


def part_length(elements: int, ranks: int) -> int:
    """Elements that each rank holds of an array that is shared out; the last ones may have less,
    and zeros in place of the rest."""
    return -(-elements // ranks)


def sum_in_order(parts: Sequence[Any], out: Any) -> None:
    """out = ((parts[0] + parts[1]) + parts[2]) + ..., which every communicator adds in this way."""
    out[...] = parts[0]
    for part in parts[1:]:
        out += part
