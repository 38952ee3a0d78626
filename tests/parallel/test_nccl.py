"""The NCCL communicator against a stand-in of `cupy.cuda.nccl`, which adds over dry ranks."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from opscope.framework.base.backend import CPUPlace
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import DeviceError, OpscopeError, RanksError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, make_var
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.parallel.nccl import NcclCommunicator
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing.device_double import DOUBLE, instead_of_cupy

TYPES = {
    name: number
    for number, name in enumerate(
        "int8 uint8 int32 uint32 int64 uint64 float16 float32 float64".split()
    )
}


class Event:
    done = True


class Stream:
    """A stream whose work is done when it is given."""

    ptr = 7

    def __init__(self, non_blocking=False):
        self.waited = 0

    def record(self):
        return Event()

    def wait_event(self, event):
        self.waited += 1


class Library:
    """NCCL's functions with the arguments of CuPy's; worlds are found by their id."""

    available = True
    NCCL_SUM = 0

    def __init__(self):
        self.worlds = {}
        self.aborted = []
        for name, number in TYPES.items():
            setattr(self, f"NCCL_{name.upper()}", number)

    def get_unique_id(self):
        made = tuple(range(len(self.worlds), len(self.worlds) + 128))
        self.worlds[made] = {}
        return made

    def NcclCommunicator(self, size, made, rank):  # noqa: N802  CuPy's name
        world = self.worlds[made].setdefault("world", DryWorld(size))
        return Ranks(self, world, rank)


class Ranks:
    def __init__(self, library, world, rank):
        from opscope.framework.parallel.dry import DryCommunicator

        self.library, self.rank = library, rank
        self.inner = DryCommunicator(world, rank)

    @staticmethod
    def at(pointer, count, kind):
        dtype = np.dtype(list(TYPES)[kind])
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(pointer)
        return np.frombuffer(memory, dtype)

    def allReduce(self, send, receive, count, kind, op, stream):  # noqa: N802
        assert (op, stream) == (0, 7)
        array = self.at(send, count, kind).copy()
        self.inner.all_reduce(array)
        self.at(receive, count, kind)[...] = array

    def allGather(self, send, receive, count, kind, stream):  # noqa: N802
        assert stream == 7
        out = self.at(receive, count * self.inner.size, kind)
        self.inner.all_gather(self.at(send, count, kind), out.reshape(-1, count))

    def broadcast(self, send, receive, count, kind, root, stream):
        assert stream == 7 and send == receive
        self.inner.broadcast(self.at(send, count, kind), root)

    def abort(self):
        self.library.aborted.append(self.rank)


@pytest.fixture
def library(monkeypatch):
    made = Library()
    with instead_of_cupy() as xp:
        cuda = SimpleNamespace(
            Device=xp.cuda.Device,
            Stream=Stream,
            get_current_stream=xp.cuda.get_current_stream,
            runtime=xp.cuda.runtime,
            nccl=made,
        )
        monkeypatch.setattr(type(xp), "cuda", cuda)
        monkeypatch.setattr(type(xp.cuda.get_current_stream()), "record", lambda s: Event(), False)
        monkeypatch.setattr(
            type(xp.cuda.get_current_stream()), "wait_event", lambda s, e: None, False
        )
        yield made


@pytest.mark.parametrize("size", [1, 2, 3])
def test_arrays_of_gpus_and_of_the_host(size, library):
    def work(host):
        c = NcclCommunicator(host, DOUBLE)
        xp = DOUBLE.xp
        array = xp.asarray(np.arange(4.0) + c.rank)
        c.all_reduce(array)
        own = np.full(3, c.rank + 1.0)
        c.all_reduce(own)
        out = xp.zeros((size, 2), np.float32)
        c.all_gather(xp.asarray(np.full(2, c.rank, np.float32)), out)
        given = xp.asarray(np.full(2, c.rank))
        c.broadcast(given, size - 1)
        c.barrier()
        return array.get(), own, out.get(), given.get()

    for array, own, out, given in DryWorld(size).run(work):
        assert array.tolist() == [size * i + sum(range(size)) for i in range(4)]
        assert own.tolist() == [size * (size + 1) / 2] * 3
        assert out.tolist() == [[rank] * 2 for rank in range(size)]
        assert given.tolist() == [size - 1] * 2
    assert len(library.worlds) == 1


def test_operators_on_gpus(library):
    def work(host):
        net, scope = PlainNet(), Scope(DOUBLE)
        net.add_var(make_var("x", (3,), "float32", INPUT))
        net.add_op("all_reduce", {"x": ["x"]}, {"out": ["y"]}, {"mode": "mean"})
        scope.var("x").set(np.full(3, host.rank, np.float32))
        net.run(scope, OpContext(communicator=NcclCommunicator(host, DOUBLE)))
        return scope.get("y").array.get().tolist()

    assert DryWorld(3).run(work) == [[1.0] * 3] * 3


def test_a_failure_is_told_and_the_gpu_freed(library):
    def work(host):
        with NcclCommunicator(host, DOUBLE) as c:
            if c.rank == 1:
                raise OpscopeError("op 3 (mul): bad")
            c.barrier()

    with pytest.raises(OpscopeError, match=r"op 3 \(mul\): bad"):
        DryWorld(2).run(work)
    assert 1 in library.aborted


def test_while_waiting_a_rank_hears_of_failures(library, monkeypatch):
    def work(host):
        c = NcclCommunicator(host, DOUBLE)
        c.barrier()
        if c.rank == 1:
            raise OpscopeError("op 3 (mul): bad")
        event = Event()
        event.done = False
        monkeypatch.setattr(c._stream, "record", lambda: event, False)
        c._request().wait()

    with pytest.raises(OpscopeError, match=r"op 3 \(mul\): bad"):
        DryWorld(2).run(work)


def test_refusals(library, monkeypatch):
    def work(host):
        with pytest.raises(DeviceError, match="NCCL wants a GPU"):
            NcclCommunicator(host, CPUPlace())
        c = NcclCommunicator(host, DOUBLE)
        with pytest.raises(RanksError, match="contiguous array, not one of strides"):
            c.all_reduce(DOUBLE.xp.zeros((4, 4))[:, :2])
        with pytest.raises(RanksError, match="NCCL exchanges no bool"):
            c.all_reduce(DOUBLE.xp.zeros(4, bool))
        library.available = False
        with pytest.raises(DeviceError, match="this CuPy has no NCCL"):
            NcclCommunicator(host, DOUBLE)

    DryWorld(1).run(work)
