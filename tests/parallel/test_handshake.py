"""Ranks that are about to run different things say so, all of them, in one sentence."""

import threading

import numpy as np
import pytest

from mpi_runs import run_ranks
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import NotFiniteError, OpscopeError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, make_var
from opscope.framework.parallel import handshake as handshake_module
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.parallel.handshake import handshake
from opscope.framework.runtime.hooks import FiniteCheck
from opscope.framework.runtime.plain_net import PlainNet


def small(middle="add", dtype="float32"):
    net = PlainNet()
    for name in ("x", "y"):
        net.add_var(make_var(name, (3,), dtype, INPUT))
    net.add_op("scale", {"x": ["x"]}, {"out": ["a"]}, {"scale": 2.0})
    net.add_op(middle, {"x": ["a"], "y": ["y"]}, {"out": ["b"]})
    net.add_op("all_reduce", {"x": ["b"]}, {"out": ["c"]})
    return net


def told(size, work):
    """The messages of all ranks."""
    messages = {}

    def one(c):
        try:
            work(c)
        except OpscopeError as error:
            messages[c.rank] = str(error)
            raise

    with pytest.raises(OpscopeError):
        DryWorld(size).run(one)
    return [messages[rank] for rank in range(size)]


def run(c, net, context=None, value=1.0):
    scope = Scope()
    for name in ("x", "y"):
        scope.var(name).set(np.full(3, value, net.vars[name].dtype))
    net.run(scope, context or OpContext(communicator=c))
    return scope.get("c").array


def test_different_operators_are_named_on_all_ranks():
    found = told(3, lambda c: run(c, small("mul" if c.rank == 2 else "add")))
    assert (
        found
        == [
            "the ranks do not run the same: operator 1 of rank 2 is"
            " `mul(x=a, y=y) -> out=b  #forward`, of rank 0 `add(x=a, y=y) -> out=b  #forward`"
        ]
        * 3
    )


@pytest.mark.parametrize(
    ("difference", "message"),
    [
        ({"steps": 5}, "the number of steps of rank 1 is `5`, of rank 0 `4`"),
        ({"settings": {"batch": 8}}, "the setting batch of rank 1 is `8`, of rank 0 `16`"),
        ({"settings": {"batch": 16, "clip": 1}}, "rank 1 has the setting clip, `1`, which rank 0"),
        (
            {"net": small(dtype="float64").op_list},
            "variable x of rank 1 is `input  x  float64[3]`, of rank 0 `input  x  float32[3]`",
        ),
        ({"net": PlainNet().op_list}, "rank 0 has operator 0, `scale(x=x) -> out=a"),
    ],
)
def test_what_differs_is_named(difference, message):
    usual = {"net": small().op_list, "steps": 4, "settings": {"batch": 16}}

    def work(c):
        handshake(c, **(usual | (difference if c.rank else {})))

    assert all(message in one for one in told(2, work))
    DryWorld(2).run(lambda c: handshake(c, **usual))


def test_another_version_is_named(monkeypatch):
    described, rank = handshake_module._described, threading.local()

    def with_own_version(*given):
        found = dict(described(*given))
        return {**found, "the version of opscope": "9"} if rank.number else found

    monkeypatch.setattr(handshake_module, "_described", with_own_version)

    def work(c):
        rank.number = c.rank
        handshake(c, small().op_list)

    for one in told(2, work):
        assert "the version of opscope of rank 1 is `9`, of rank 0 `" in one


def test_many_differing_ranks_are_counted():
    (first, *_) = told(8, lambda c: handshake(c, small().op_list, steps=c.rank))
    assert first.count("the number of steps") == 4
    assert first.endswith("; 3 more ranks differ")


def test_equal_nets_are_compared_once():
    def work(c):
        net = small()
        for _ in range(3):
            run(c, net)
        return [message.kind for message in c.messages]

    assert DryWorld(2).run(work) == [["exchange"] + ["all_reduce"] * 3] * 2


def test_a_net_without_exchanges_runs_on_one_rank_alone():
    def work(c):
        if c.rank == 0:
            net = PlainNet()
            net.add_var(make_var("x", (3,), "float32", INPUT))
            net.add_op("relu", {"x": ["x"]}, {"out": ["c"]})
            scope = Scope()
            scope.var("x").set(np.ones(3, "float32"))
            net.run(scope, OpContext(communicator=c))
        return len(c.messages)

    assert DryWorld(2).run(work) == [0, 0]


def test_a_nan_on_one_rank_ends_all_with_its_operator():
    def work(c):
        context = OpContext(communicator=c, hooks=[FiniteCheck(inputs=False)])
        run(c, small(), context, np.nan if c.rank == 1 else 1.0)

    found = told(2, work)
    assert "op 1 (add)" in found[1] and "output out=b holds nan at [0]" in found[1]
    assert found[0].startswith("rank 1 of 2 has ended the run: op 1 (add)")
    assert "op 2 (all_reduce)" in found[0]
    with pytest.raises(NotFiniteError):
        DryWorld(2).run(work)


def test_under_mpiexec_one_message_names_rank_and_operator(tmp_path):
    program = """
        import numpy as np
        from opscope.framework.base.context import OpContext
        from opscope.framework.base.scope import Scope
        from opscope.framework.ir.desc import INPUT, make_var
        from opscope.framework.parallel.mpi import MpiCommunicator
        from opscope.framework.runtime.plain_net import PlainNet
        with MpiCommunicator() as c:
            net, scope = PlainNet(), Scope()
            net.add_var(make_var("x", (3,), "float32", INPUT))
            net.add_op("relu" if c.rank else "abs", {"x": ["x"]}, {"out": ["a"]})
            net.add_op("all_reduce", {"x": ["a"]}, {"out": ["b"]})
            scope.var("x").set(np.ones(3, np.float32))
            net.run(scope, OpContext(communicator=c))
    """
    done = run_ranks(2, program, tmp_path)
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("opscope: ")]
    assert "operator 0 of rank 1 is `relu(x=x) -> out=a  #forward`, of rank 0 `abs(" in line
