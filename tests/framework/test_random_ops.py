"""What the verifier passes ends in a value or in an error of the package: operators of chance."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from campaign.generators import ops
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import OpscopeError, RunError, ShapeError, SlotError
from opscope.framework.base.scope import Scope
from opscope.framework.base.sizes.shape import same_as
from opscope.framework.ir.desc import INPUT, PARAMETER, make_op, make_var
from opscope.framework.ir.kernel_args import Call, KernelArgs
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.registry import Slot, operator, unregister
from opscope.framework.passes.verify.verifier import problems, verify
from opscope.framework.runtime import executor
from opscope.framework.runtime.footprint import footprint
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.plain_net import PlainNet
from opscope.framework.runtime.plans import memory
from rnn_nets import packed, rnn
from rnn_nets import run as run_steps


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_LIMITS", "run=256M")
    monkeypatch.setattr(executor, "_SMALL_RUN", 1 << 20)


def test_operators_of_chance() -> None:
    outcomes = Counter(ops.check(ops.case(random.Random(seed))) for seed in range(200))
    assert outcomes["value"] > 50 and outcomes["refused"] > 50 and outcomes["error"] > 5


def net(*written: tuple, **given: tuple[int, ...]) -> OpList:
    """A net of some operators over inputs of float32."""
    vars_ = [make_var(name, shape, "float32", INPUT) for name, shape in given.items()]
    return OpList("n", vars=vars_, ops=[make_op(*op) for op in written])


@pytest.mark.parametrize(
    ("desc", "error", "told"),
    [
        (
            net(("broadcast", {"x": ["x"]}, {"out": ["a", "b"]}), x=(2, 3)),
            ShapeError,
            r"op 0 \(broadcast\): output slot 'out' wants 1 variables and has 2",
        ),
        (
            net(
                ("sequence_concat_grad", {"x": ["x"], "out_grad": "y"}, {"x_grad": ["a", "b"]}),
                x=(2, 3),
                y=(2, 3),
            ),
            ShapeError,
            r"'x_grad' wants 1 variables and has 2",
        ),
        (
            net(("square_grad", {"x": "x", "out_grad": "y"}, {}), x=(2,), y=(2,)),
            SlotError,
            r"square_grad\) writes nothing: give one of x_grad",
        ),
        (
            net(("square_grad", {"x": "x", "out_grad": "y"}, {"x_grad": "z"}), x=(2,), y=(3,)),
            ShapeError,
            r"out_grad=y is float32\[3\]; square makes float32\[2\] of these inputs",
        ),
        (
            net(("fill_constant", {}, {"out": "a"}, {"shape": [0, 2**62]})),
            ShapeError,
            r"'a', float32\[0, 4611686018427387904\], is larger than any array",
        ),
    ],
)
def test_what_is_refused_beforehand(desc: OpList, error: type[OpscopeError], told: str) -> None:
    with pytest.raises(error, match=told):
        verify(desc)
    with pytest.raises(error, match=told):
        Net.create(desc)


def test_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without memory is made: NumPy's own error has no operator and no sizes of ours."""

    class NoMemory:
        @staticmethod
        def empty(*_: object) -> None:
            raise MemoryError

    with pytest.raises(RunError, match="no memory for 24 bytes"):
        memory.fresh_array(NoMemory, (2, 3), np.dtype("float32"))
    with pytest.raises(RunError, match="no memory for 64 bytes"):
        memory.fresh(NoMemory, 64)
    monkeypatch.setattr(executor.FrameMemory, "_allocate", lambda _: NoMemory.empty())
    desc = net(("relu", {"x": "x"}, {"out": "y"}), x=(2, 3))
    scope = Scope()
    scope.feed({"x": np.ones((2, 3), "float32")})
    with pytest.raises(RunError, match="net 'n': the run cannot be prepared: MemoryError"):
        Net.create(desc).run(scope, OpContext())


def test_a_hint_is_no_error() -> None:
    desc = net(("broadcast", {"x": ["x", "x"]}, {"out": ["a", "@EMPTY@"]}), x=(2, 3))
    assert not [one for one in problems(desc) if one.severity == "error"]


def test_what_a_run_would_take() -> None:
    ops_ = (("matmul", {"x": "x", "y": "w"}, {"out": "h"}), ("tanh", {"x": "h"}, {"out": "y"}))
    desc = net(*ops_, ("reduce_sum", {"x": "y"}, {"out": "z"}), x=(-1, 8))
    desc.vars.append(make_var("w", (8, 16), "float32", PARAMETER))
    one, four = footprint(desc), footprint(desc, 4)
    assert one is not None and four is not None
    assert (one.parameters, one.results) == (8 * 16 * 4, 4) and one.temporaries >= 16 * 4
    assert four.temporaries == 4 * one.temporaries and four.results == 4
    frame_net, scope = Net.create(desc), Scope()
    scope.feed({"x": np.ones((4, 8), "float32"), "w": np.ones((8, 16), "float32")})
    frame_net.run(scope, OpContext())
    assert isinstance(frame_net, PlainNet)
    plan = frame_net.frame(scope, OpContext()).plan
    assert sum(plan.blocks) == four.temporaries
    assert footprint(net(("relu", {"x": "unknown"}, {"out": "y"}))) is None


@pytest.mark.parametrize("switch", ["fast", "steps"])
def test_the_operator_of_a_step_net_is_named(monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    """Of a loop whose steps run as one list of calls, and of one that runs step by step."""
    monkeypatch.setenv("OPSCOPE_RECURRENT", switch)
    fails = operator(
        "fails_late",
        doc="Fails.",
        inputs=[Slot("x", "any")],
        outputs=[Slot("out", "as x")],
        shape=same_as("x"),
    )

    @fails.kernel
    def _fails(k: KernelArgs) -> Call:
        return lambda: {}["gone"]

    try:
        steps = [
            ("tanh", {"x": "p"}, {"out": "a"}),
            ("fails_late", {"x": "a"}, {"out": "b"}),
            ("add", {"x": "x", "y": "b"}, {"out": "h"}),
        ]
        state = {"state": "h", "previous": "p", "boot_value": 0.0}
        desc = rnn(
            steps, ins={"xs": "x"}, outs={"ys": "h"}, memories=[state], shapes={"p": [-1, 3]}
        )
        told = r"op 1 \(fails_late\): failed: KeyError: 'gone' \(x=a float64\[\d, 3\]"
        values = {"xs": packed(np.random.default_rng(0), [2, 3], 3)}
        with pytest.raises(RunError, match=told):
            run_steps(desc, values, ["ys"])
    finally:
        unregister("fails_late")


def test_the_gradient_of_an_order_wants_places_that_fit() -> None:
    slots = {"x": "x", "ids": "ids", "out_grad": "g"}
    for shape, attrs, told in (((2, 1), {"axis": 4}, "axis 4"), ((2,), {}, "ids and out_grad")):
        desc = net(("sort_grad", slots, {"x_grad": "d"}, attrs), x=(2, 1), g=(2, 1))
        desc.vars.append(make_var("ids", shape, "int64", INPUT))
        with pytest.raises(ShapeError, match=told):
            verify(desc)
