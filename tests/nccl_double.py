"""A stand-in of `cupy.cuda.nccl` beside the stand-in of CuPy: it adds over dry ranks."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from types import SimpleNamespace

import numpy as np

from opscope.framework.parallel.dry import DryCommunicator, DryWorld
from opscope.testing.device_double import instead_of_cupy
from opscope.testing.device_graphs import Stream

TYPES = {
    name: number
    for number, name in enumerate(
        "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64".split()
    )
}


class Event:
    done = True


class OwnStream(Stream):
    """A stream whose work is done when it is given."""

    def record(self):
        return Event()


class Library:
    """NCCL's functions with the arguments of CuPy's; worlds are found by their id."""

    available = True
    NCCL_SUM = 0

    def __init__(self):
        self.worlds = {}
        self.aborted = []
        self._lock = threading.Lock()  # ranks are threads
        for name, number in TYPES.items():
            setattr(self, f"NCCL_{name.upper()}", number)

    def get_unique_id(self):
        with self._lock:
            made = tuple(range(len(self.worlds), len(self.worlds) + 128))
            self.worlds[made] = {}
            return made

    def NcclCommunicator(self, size, made, rank):  # noqa: N802  CuPy's name
        with self._lock:
            world = self.worlds[made].setdefault("world", DryWorld(size))
        return Ranks(self, world, rank)


class Ranks:
    def __init__(self, library, world, rank):
        self.library, self.rank = library, rank
        self.inner = DryCommunicator(world, rank)

    @staticmethod
    def at(pointer, count, kind):
        dtype = np.dtype(list(TYPES)[kind])
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(pointer)
        return np.frombuffer(memory, dtype)

    def allReduce(self, send, receive, count, kind, op, stream):  # noqa: N802
        assert op == 0 < stream
        array = self.at(send, count, kind).copy()
        self.inner.all_reduce(array)
        self.at(receive, count, kind)[...] = array

    def allGather(self, send, receive, count, kind, stream):  # noqa: N802
        assert stream
        out = self.at(receive, count * self.inner.size, kind)
        self.inner.all_gather(self.at(send, count, kind), out.reshape(-1, count))

    def reduceScatter(self, send, receive, count, kind, op, stream):  # noqa: N802
        assert op == 0 < stream
        whole = self.at(send, count * self.inner.size, kind).reshape(-1, count)
        self.inner.reduce_scatter(whole, self.at(receive, count, kind))

    def broadcast(self, send, receive, count, kind, root, stream):
        assert stream and send == receive
        self.inner.broadcast(self.at(send, count, kind), root)

    def send(self, send, count, kind, peer, stream):
        assert stream and peer == 1 - self.rank
        self.inner.send(self.at(send, count, kind), peer)

    def recv(self, receive, count, kind, peer, stream):
        assert stream and peer == 1 - self.rank
        self.inner.receive(self.at(receive, count, kind), peer)

    def abort(self):
        self.library.aborted.append(self.rank)


class Noted(threading.local):
    """Crossings between host and device by the thread that makes them."""

    def __init__(self):
        self.own = []

    def append(self, what):
        self.own.append(what)


@contextlib.contextmanager
def instead_of_nccl(gpus=2):
    """Within it CuPy's stand-in has so many GPUs, and NCCL between them: gives the library."""
    made = Library()
    with instead_of_cupy() as xp:
        cuda = xp.cuda
        runtime = SimpleNamespace(**{**vars(cuda.runtime), "getDeviceCount": lambda: gpus})
        more = {"Stream": OwnStream, "runtime": runtime, "nccl": made}
        type(xp).cuda = SimpleNamespace(**{**vars(cuda), **more})
        try:
            yield made
        finally:
            type(xp).cuda = cuda
