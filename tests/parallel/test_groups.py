"""What one rank sends to one other, and exchanges among some of the ranks."""

import numpy as np
import pytest

from mpi_runs import run_ranks
from nccl_double import instead_of_nccl
from opscope.framework.base.backend import GPUPlace, to_host
from opscope.framework.base.communicator import SingleCommunicator
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import OpscopeError, RanksError
from opscope.framework.base.scope import Scope
from opscope.framework.base.sequence import Sequences
from opscope.framework.ir.desc import INPUT, make_var
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.parallel.groups import Group
from opscope.framework.parallel.link import Link
from opscope.framework.parallel.nccl import NcclCommunicator
from opscope.framework.runtime.plain_net import PlainNet


def test_arrays_come_in_the_order_in_which_they_were_sent():
    def work(c):
        if c.rank == 0:
            own = np.arange(3.0)
            c.send(own, 1)
            own += 10  # which the other must not see
            c.send(own.reshape(3, 1), 1)
            c.send(np.zeros((0, 2), np.int8), 1)
            return [message.kind for message in c.messages], c.seconds
        first, second, none = np.empty(3), np.empty((3, 1)), np.empty((0, 2), np.int8)
        for out in (first, second, none):
            c.receive(out, 0)
        return first.tolist(), second.ravel().tolist()

    sender, receiver = DryWorld(2, Link(latency=1.0)).run(work)
    assert sender == (["send"] * 3, 3.0)
    assert receiver == ([0, 1, 2], [10, 11, 12])


def test_what_cannot_be_sent_or_received():
    with pytest.raises(RanksError, match="'single' send nothing to one rank alone"):
        SingleCommunicator().send(np.zeros(1), 0)
    with pytest.raises(RanksError, match="'single' receive nothing from one rank alone"):
        SingleCommunicator().receive(np.zeros(1), 0)

    def other_shape(c):
        if c.rank == 0:
            c.send(np.zeros(3), 1)
        else:
            c.receive(np.zeros(2), 0)

    with pytest.raises(RanksError, match=r"rank 1 wants float64\[2\].* rank 0 has sent .*\[3\]"):
        DryWorld(2).run(other_shape)
    with pytest.raises(RanksError, match="there is no rank 2"):
        DryWorld(2).run(lambda c: c.send(np.zeros(1), 2))


def test_a_sum_in_a_group_wants_a_contiguous_array():
    def work(c):
        Group(c, [0, 1]).start_all_reduce(np.ones((2, 3)).T)

    with pytest.raises(RanksError, match=r"a sum wants a contiguous array.*strides \(8, 24\)"):
        DryWorld(2).run(work)


@pytest.mark.parametrize("culprit", [0, 2])
def test_who_waits_hears_of_a_rank_that_fails(culprit):
    """Be it the one that is waited for or a third one."""

    def work(c):
        if c.rank == culprit:
            raise OpscopeError("op 3 (mul): bad")
        if c.rank == 1:
            c.operator = "op 1 (receive)"
            with pytest.raises(RanksError, match=r"op 3 \(mul\): bad; op 1 \(receive\) of rank 1"):
                c.receive(np.zeros(1), 0)
        else:
            with pytest.raises(RanksError):
                c.receive(np.zeros(1), 1)

    with pytest.raises(OpscopeError, match="^op 3"):
        DryWorld(3).run(work)


def exchanges(c, xp=np):
    """What all exchanges of a group give; the group's ranks have other numbers in the world."""
    rng = np.random.default_rng(c.rank)
    summed = xp.asarray(rng.normal(size=(3, 5)))
    c.all_reduce(summed)
    part = xp.zeros(4)
    c.reduce_scatter(xp.asarray(rng.normal(size=(c.size, 4))), part)
    rows = xp.zeros((c.size, 2))
    c.all_gather(xp.asarray(rng.normal(size=2)), rows)
    given = xp.asarray(rng.normal(size=3))
    c.broadcast(given, c.size - 1)
    said = c.exchange(b"x" * c.rank)
    gathered = c.all_gather_rows(rng.normal(size=(c.rank, 2)))
    c.barrier()
    return [*(to_host(one).copy() for one in (summed, part, rows, given)), *gathered], said


def check_exchanges(found, wanted):
    for (arrays, said), (others, same) in zip(found, wanted, strict=True):
        assert said == same and len(arrays) == len(others)
        for array, other in zip(arrays, others, strict=True):
            assert array.shape == other.shape and array.tobytes() == other.tobytes()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_group_gives_what_a_world_of_its_ranks_gives(size):
    members = [4, 1, 3][:size]
    wanted = DryWorld(size).run(exchanges)

    def work(c):
        return exchanges(Group(c, members)) if c.rank in members else None

    found = DryWorld(5).run(work)
    check_exchanges([found[rank] for rank in members], wanted)


def test_a_group_of_gpus():
    wanted = DryWorld(2).run(exchanges)

    def work(c):
        place = GPUPlace(c.rank)
        return exchanges(Group(NcclCommunicator(c, place), [1, 0]), place.xp)

    with instead_of_nccl(2):
        found = DryWorld(2).run(work)
    check_exchanges(found[::-1], wanted)


def test_peers_are_other_ranks_than_members():
    def work(c):
        group = Group(c, [c.rank], [2, 0, 1])
        group.send(np.array([c.rank]), 1)  # to rank 0
        if c.rank == 0:
            got = [np.zeros(1, int) for _ in range(3)]
            for place, out in enumerate(got):
                group.receive(out, place)
            return [int(out[0]) for out in got], group.waited >= 0
        return None

    assert DryWorld(3).run(work)[0] == ([2, 0, 1], True)


def test_the_operators_send_and_receive():
    def work(c):
        net, scope = PlainNet(), Scope()
        context = OpContext(communicator=c)
        for name, shape, levels in (("a", (2, 3), 0), ("s", (4, 1), 1)):
            net.add_var(make_var(name, (-1, *shape[1:]), "float32", INPUT, sequence_levels=levels))
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        s = Sequences.from_list([np.ones((1, 1), "f4"), np.full((3, 1), 2, "f4")])
        if c.rank == 0:
            net.add_op("send", {"x": ["a", "s"]}, {"ticket": "t"}, {"rank": 1})
            scope.var("a").set(x)
            scope.var("s").set(s)
        else:
            net.add_op("receive", {"like": ["a", "s"]}, {"out": ["b", "r"]}, {"rank": 0})
            scope.var("a").set(np.zeros_like(x))
            scope.var("s").set(Sequences(np.zeros_like(s.data), s.levels))
        c.agreed.add(net.version)  # the nets of the two ranks are not alike
        net.run(scope, context)
        if c.rank == 0:
            return None
        return scope.numpy("b"), scope.sequences("r")

    _, (array, sequences) = DryWorld(2).run(work)
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert [len(one) for one in sequences] == [1, 3] and sequences.data.sum() == 7


def test_processes_of_mpi(tmp_path):
    program = """
        import numpy as np
        from opscope.framework.parallel.groups import Group
        from opscope.framework.parallel.mpi import MpiCommunicator

        with MpiCommunicator() as c:
            large = np.arange(300_000.0) + c.rank
            c.send(large, 1 - c.rank)  # both at once, beyond what MPI sends without waiting
            out = np.empty((300_000, 2))[:, 0]
            c.receive(out, 1 - c.rank)
            assert (out == np.arange(300_000.0) + 1 - c.rank).all()
            group = Group(c, [1, 0])
            group.all_reduce(large)
            assert (large == 2 * np.arange(300_000.0) + 1).all()
            assert group.exchange(bytes([c.rank])) == [bytes([1]), bytes([0])]
            if c.rank == 1:
                raise SystemExit(3)
            c.receive(np.empty(1), 1)
    """
    done = run_ranks(2, program, tmp_path)
    assert done.returncode != 0
    assert "rank 1 of 2 has ended the run" in done.stderr
