"""Values that wait in the host's memory, so that a device has room for others meanwhile.

Copies go through memory that the system does not move (pinned), on a stream of their own: other
operators run meanwhile. Which variables are moved is chosen by passes/memory/less_memory.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.backend import same_memory
from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.names import (
    FROM_HOST_START_OP,
    FROM_HOST_WAIT_OP,
    TO_HOST_START_OP,
    TO_HOST_WAIT_OP,
)
from ...framework.ir.registry import EVERYWHERE, Slot, operator
from ...framework.runtime.plans.memory import Held

_SOURCE = "Rhu and others 2016, vDNN: Virtualized Deep Neural Networks"
_NO_GRADIENT = "it is put between operators of a net that has its gradients already"
_TICKET = "[], int64: by its name the copy is found; it holds nothing"
_WAITED = "[], int64: it holds nothing"
_COPIES = "host copies"


@dataclass
class _Copy:
    """A value on the host.

    Attributes:
        memory: bytes, which frames of several shapes use one after another. host: the value in it.
        done: what a stream waits for until the last copy is complete.
    """

    memory: np.ndarray
    host: np.ndarray | None = None
    done: Any = None


class _HostCopies(Held):
    """The values of a scope that wait on the host, by the names of their tickets."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._stream = None if xp is np else xp.cuda.Stream(non_blocking=True)
        self._by_ticket: dict[str, _Copy] = {}

    @property
    def nbytes(self) -> int:
        return 0  # it is the host's

    def make_room(self, ticket: str, size: int) -> None:
        """Take memory for a value of so many bytes."""
        known = self._by_ticket.get(ticket)
        if known is not None and known.memory.nbytes >= size:
            return
        if known is not None and self._stream is not None:
            self._stream.synchronize()  # who takes the memory next does not wait for its copies
        self._by_ticket[ticket] = _Copy(self._memory(size))

    def put(self, ticket: str, x: Any) -> None:
        """Begin to copy a value to the host."""
        copy = self._by_ticket[ticket]
        copy.host = copy.memory[: x.nbytes].view(x.dtype).reshape(x.shape)
        if self._stream is None:
            np.copyto(copy.host, x)
            return
        self._after_all()
        if x.size:
            x.get(stream=self._stream, out=copy.host, blocking=False)
        copy.done = self._stream.record()

    def take(self, ticket: str, out: Any) -> None:
        """Begin to copy a value back."""
        copy, host = self._waiting(ticket)
        if host.shape != out.shape:
            raise RunError(f"the value of the ticket {ticket!r} is {host.shape}, not {out.shape}")
        if self._stream is None:
            np.copyto(out, host)
            return
        self._after_all()
        if out.size:
            out.set(host, stream=self._stream)
        copy.done = self._stream.record()

    def wait(self, ticket: str) -> None:
        """Let what follows wait for the last copy of a value."""
        copy, _ = self._waiting(ticket)
        if self._stream is not None:
            self._xp.cuda.get_current_stream().wait_event(copy.done)

    def _waiting(self, ticket: str) -> tuple[_Copy, np.ndarray]:
        copy = self._by_ticket.get(ticket)
        if copy is None or copy.host is None:
            raise RunError(f"no value of the ticket {ticket!r} waits on the host")
        return copy, copy.host

    def _after_all(self) -> None:
        # What has written the value, or has read what was in its memory before, comes first.
        assert self._stream is not None
        self._stream.wait_event(self._xp.cuda.get_current_stream().record())

    def _memory(self, size: int) -> np.ndarray:
        if self._stream is None or not size:
            return np.empty(size, np.uint8)
        return np.frombuffer(self._xp.cuda.alloc_pinned_memory(size), np.uint8, size)


def _copies(k: KernelArgs) -> _HostCopies:
    key = _COPIES, k.frame.place
    known = k.frame.scope.bound
    if key not in known:
        known[key] = _HostCopies(k.xp)
    return known[key]


to_host_start = operator(
    TO_HOST_START_OP,
    doc="""Begins to copy a value to the host's memory, where it waits for `from_host_start`. Its
memory may be used for others after `to_host_wait`.""",
    inputs=[Slot("x", "any shape")],
    outputs=[Slot("ticket", _TICKET)],
    source=_SOURCE,
    no_gradient=_NO_GRADIENT,
    takes_halves=EVERYWHERE,
)
to_host_wait = operator(
    TO_HOST_WAIT_OP,
    doc="Ends what `to_host_start` has begun: the memory of x is not read any more.",
    inputs=[Slot("x", "the value that is copied"), Slot("ticket", "the ticket of the start, []")],
    outputs=[Slot("waited", _WAITED)],
    source=_SOURCE,
    no_gradient=_NO_GRADIENT,
    takes_halves=EVERYWHERE,
)
from_host_start = operator(
    FROM_HOST_START_OP,
    doc="Begins to copy back a value that `to_host_start` has put into the host's memory.",
    inputs=[
        Slot("like", "x of the start; its values are not read", shape_only=True),
        Slot("ticket", "the ticket of the start, []"),
    ],
    outputs=[Slot("lent", "shape of `like`: on its way, to be read by the wait alone")],
    source=_SOURCE,
    no_gradient=_NO_GRADIENT,
    takes_halves=EVERYWHERE,
)
from_host_wait = operator(
    FROM_HOST_WAIT_OP,
    doc="Ends what `from_host_start` has begun: out is the value as it was.",
    inputs=[
        Slot("x", "what the start has lent"),
        Slot("ticket", "the ticket of the start, []"),
    ],
    outputs=[Slot("out", "shape of x; may be x", inplace="x")],
    source=_SOURCE,
    no_gradient=_NO_GRADIENT,
    takes_halves=EVERYWHERE,
)


@to_host_start.shape_rule
def to_host_start_shape(s: ShapeArgs) -> None:
    s.set("ticket", ((), "int64"))


@to_host_wait.shape_rule
def to_host_wait_shape(s: ShapeArgs) -> None:
    s.integers("ticket")
    s.rank("ticket", 0)
    s.set("waited", ((), "int64"))


@from_host_start.shape_rule
def from_host_start_shape(s: ShapeArgs) -> None:
    s.integers("ticket")
    s.rank("ticket", 0)
    s.set("lent", *s.specs("like"))


@from_host_wait.shape_rule
def from_host_wait_shape(s: ShapeArgs) -> None:
    s.integers("ticket")
    s.rank("ticket", 0)
    s.set("out", *s.specs("x"))


@to_host_start.kernel
def to_host_start_kernel(k: KernelArgs) -> Call:
    copies, x = _copies(k), k["x"]
    (ticket,) = k.op.outputs["ticket"]
    copies.make_room(ticket, x.nbytes)
    return lambda: copies.put(ticket, x)


@to_host_wait.kernel
def to_host_wait_kernel(k: KernelArgs) -> Call:
    copies = _copies(k)
    (ticket,) = k.op.inputs["ticket"]
    return lambda: copies.wait(ticket)


@from_host_start.kernel
def from_host_start_kernel(k: KernelArgs) -> Call:
    copies, out = _copies(k), k["lent"]
    (ticket,) = k.op.inputs["ticket"]
    return lambda: copies.take(ticket, out)


@from_host_wait.kernel
def from_host_wait_kernel(k: KernelArgs) -> Call:
    copies, x, out = _copies(k), k["x"], k["out"]
    (ticket,) = k.op.inputs["ticket"]

    def run() -> None:
        copies.wait(ticket)
        if not same_memory(x, out):
            k.xp.copyto(out, x)

    return run
