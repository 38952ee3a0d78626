"""The NCCL communicator against a stand-in of `cupy.cuda.nccl`, which adds over dry ranks."""

import numpy as np
import pytest

from nccl_double import Event, instead_of_nccl
from opscope.framework.base.backend import CPUPlace
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import DeviceError, OpscopeError, RanksError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, make_var
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.parallel.nccl import NcclCommunicator
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing.device_double import DOUBLE


@pytest.fixture
def library():
    with instead_of_nccl() as made:
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
        part = xp.zeros(2)
        c.reduce_scatter(xp.asarray(np.arange(2.0 * size).reshape(size, 2)), part)
        assert part.get().tolist() == [size * (2.0 * c.rank + n) for n in range(2)]
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
