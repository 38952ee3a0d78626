"""The passes as text, their order, their buckets in memory, and what they refuse."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import opscope
from opscope.framework.base.backend import address
from opscope.framework.base.context import Hook, OpContext
from opscope.framework.base.errors import (
    AttributeTypeError,
    GradientError,
    OpscopeError,
    VariableError,
)
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import FORWARD, INPUT, make_op, make_var
from opscope.framework.ir.messages import parse_net, serialize_net
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.printer import net_text, op_text
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.passes.cleanup import cleanup_passes
from opscope.framework.passes.lowering import LOWERING
from opscope.framework.passes.pipeline import run_passes
from opscope.framework.passes.precision.to_dtype import ToFloat64, ToHalf
from opscope.framework.passes.prune import prune
from opscope.framework.passes.ranks.all_reduce import InsertAllReduce
from opscope.framework.passes.ranks.sync_batch_norm import SyncBatchNorm
from opscope.framework.passes.verify.verifier import problems
from opscope.framework.passes.verify.world import check_world, world_types
from opscope.framework.runtime.initialize import initialize
from opscope.framework.runtime.plain_net import PlainNet
from parallel_nets import mlp, normalized, rows, weighted, words


def lines(net: OpList, *kinds: str) -> list[str]:
    """The operators of some kinds as text."""
    return [op_text(op) for op in net.ops if op.type.startswith(kinds)]


# -- text ----------------------------------------------------------------------------------------

W = "weight=ranks@WEIGHT, total=ranks@WEIGHT_TOTAL"


def test_sums_stand_before_the_updates():
    before = mlp("float32", clip_norm=1.0)
    net = InsertAllReduce().apply(before)
    assert problems(net) == []
    names = "fc_1.w@GRAD, fc_1.b@GRAD, fc_0.w@GRAD, fc_0.b@GRAD"
    made = [op_text(op) for op in net.ops if op not in before.ops]
    assert made == [
        "element_count(x=softmax_cross_entropy_0) -> out=ranks@WEIGHT  #backward",
        "all_reduce(x=ranks@WEIGHT) -> out=ranks@WEIGHT_TOTAL  #backward",
        f"all_reduce(x=[{names}], {W}) -> out=[{names}]  #backward",
    ]
    types = [op.type for op in net.ops]
    assert types.index("all_reduce") < types.index("fill_like")
    last = len(types) - 1 - types[::-1].index("all_reduce")
    assert types[last + 1] == "global_norm_scale"
    assert [op for op in net.ops if op in before.ops] == before.ops


def test_buckets_in_the_order_of_the_backward_pass(monkeypatch):
    monkeypatch.setattr("opscope.framework.passes.ranks.all_reduce.WORTH", 1)
    net = InsertAllReduce(bucket_bytes=120).apply(mlp("float32"))
    assert problems(net) == []
    first, last = "fc_1.w@GRAD, fc_1.b@GRAD", "fc_0.b@GRAD"
    found = lines(net, "all_reduce", "tanh_grad", "affine_grad", "matmul_grad", "momentum")
    sums = [line for line in found if line.startswith("all_reduce")][1:]
    assert sums == [
        f"all_reduce_start(x=[{first}], {W}) -> lent=[{first}], ticket=ranks@TICKET@0  #backward",
        f"all_reduce_wait(x=[{first}], ticket=ranks@TICKET@0) -> out=[{first}]  #backward",
        f"all_reduce(x=fc_0.w@GRAD, {W}) -> out=fc_0.w@GRAD  #backward",
        f"all_reduce(x={last}, {W}) -> out={last}  #backward",
    ]
    types = [line.partition("(")[0] for line in found]
    assert types.index("all_reduce_start") < types.index("tanh_grad")
    assert types.index("tanh_grad") < types.index("all_reduce_wait")
    plain = InsertAllReduce(bucket_bytes=120, overlap=False).apply(mlp("float32"))
    assert not lines(plain, "all_reduce_start")


GOLDEN = Path(__file__).parent.parent / "golden"
NETS = {"words": words, "normalized": normalized}


@pytest.mark.parametrize("kind", NETS)
def test_golden_text(kind):
    """Sparse rows stay sparse; synchronized statistics, with their gradients and weights."""
    net = run_passes(NETS[kind]("float32"), (SyncBatchNorm(), InsertAllReduce(rows=12)))
    assert problems(net) == []
    assert net_text(net) == (GOLDEN / f"data_parallel_{kind}.txt").read_text(encoding="utf-8")


def test_the_passes_in_another_order_give_the_same_gradients():
    one = run_passes(normalized("float32"), (SyncBatchNorm(), InsertAllReduce()))
    other = run_passes(normalized("float32"), (InsertAllReduce(), SyncBatchNorm()))
    kind = "batch_norm_sums_grad"
    inputs = [[dict(op.inputs) for op in net.ops if op.type == kind] for net in (one, other)]
    assert inputs[0] == inputs[1]
    assert [given["weight"] for given in inputs[0]] == [("ranks@WEIGHT",)] * 2


def test_batch_norm_before_the_backward_pass_and_with_running_values():
    b = opscope.NetBuilder("n")
    x = b.input("x", [-1, 6])
    b.mean(b.batch_norm(b.batch_norm(x, use_global_stats=True)), name="loss")
    net = SyncBatchNorm().apply(b.op_list)
    types = [op.type for op in net.ops]
    assert types == ["batch_norm", "batch_norm_sums", "batch_norm_apply", "mean"]
    trained = PlainNet(net)
    trained.add_backward_ops("loss")
    assert "batch_norm_sums_grad" in [op.type for op in trained.operators]


@pytest.mark.parametrize("make", [mlp, words, normalized, weighted])
def test_saved_and_loaded_like_any_operator(make):
    net = run_passes(make("float32"), (SyncBatchNorm(), InsertAllReduce(bucket_bytes=100)))
    again = parse_net(serialize_net(PlainNet(net).desc))
    assert net_text(again) == net_text(PlainNet(net).op_list)


# -- other passes ----------------------------------------------------------------------------------


def world_net() -> OpList:
    """Operators that touch the world outside, some equal, some whose results nobody reads."""
    net = PlainNet()
    net.add_var(make_var("x", (4, 3), "float32", INPUT))
    net.add_op("all_reduce", {"x": ["x"]}, {"out": ["a"]})
    net.add_op("all_reduce", {"x": ["x"]}, {"out": ["b"]})
    net.add_op("broadcast", {"x": ["x"]}, {"out": ["unread"]})
    net.add_op("assign", {"x": ["b"]}, {"out": ["c"]})
    net.add_op("all_gather", {"x": ["c"]}, {"out": ["unread2"]}, {"ranks": 2})
    net.add_op("all_reduce_start", {"x": ["a"]}, {"lent": ["l"], "ticket": ["t"]})
    net.add_op("relu", {"x": ["x"]}, {"out": ["dead"]})
    net.add_op("all_reduce_wait", {"x": ["l"], "ticket": ["t"]}, {"out": ["d"]})
    net.add_op("mean", {"x": ["d"]}, {"out": ["loss"]})
    return net.op_list


@pytest.mark.parametrize(
    "one",
    [
        *cleanup_passes(("loss",)),
        *cleanup_passes(("loss",), False),
        *LOWERING,
        ToFloat64(),
        ToHalf(np.dtype("float16")),
        SyncBatchNorm(),
    ],
    ids=lambda one: one.name,
)
def test_no_pass_drops_merges_or_moves_them(one, monkeypatch):
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    before = world_net()
    after = run_passes(before, (one,))
    assert (
        world_types(after)
        == world_types(before)
        == [
            "all_reduce",
            "all_reduce",
            "broadcast",
            "all_gather",
            "all_reduce_start",
            "all_reduce_wait",
        ]
    )


def test_every_kind_of_training_net_keeps_them(monkeypatch):
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    for make in (mlp, words, normalized, weighted):
        net = run_passes(make("float32"), (SyncBatchNorm(), InsertAllReduce()))
        for passes in (cleanup_passes(), cleanup_passes(("loss",)), (ToFloat64(),)):
            assert world_types(run_passes(net, passes)) == world_types(net)


@dataclass(frozen=True)
class Rewrite:
    """A pass that does what none may do."""

    order: tuple[int, ...]
    name: str = "rewrite"

    def apply(self, net: OpList) -> OpList:
        out = net.copy()
        out.ops = [net.ops[number] for number in self.order]
        return out


@pytest.mark.parametrize(("order", "lost"), [((1, 0), "all_reduce"), ((0,), "broadcast")])
def test_the_verifier_names_the_pass_that_does(order, lost, monkeypatch):
    net = PlainNet()
    net.add_var(make_var("x", (4, 3), "float32", INPUT))
    net.add_op("all_reduce", {"x": ["x"]}, {"out": ["a"]})
    net.add_op("broadcast", {"x": ["x"]}, {"out": ["b"]})
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    with pytest.raises(OpscopeError, match="after pass rewrite: .* is gone or stands elsewhere"):
        run_passes(net.op_list, (Rewrite(order),))
    check_world(net.op_list, net.op_list, "here")


def test_pruning_takes_what_the_outputs_need():
    net = run_passes(normalized("float32"), (SyncBatchNorm(), InsertAllReduce()))
    assert world_types(prune(net, ["loss"])) == ["batch_norm_sums"] * 2


# -- buckets in memory -----------------------------------------------------------------------------


class Buckets(Hook):
    """Notes where the gradients lie and which arrays are sent."""

    def __init__(self):
        self.joined = []
        self.places = {}

    def after_run(self, frame):
        self.joined = list(frame.joined)
        names = [name for names in frame.joined for name in names]
        self.places = {name: address(frame.arrays[name]) for name in names}
        self.sizes = {name: frame.arrays[name].nbytes for name in names}


def test_gradients_lie_side_by_side_and_are_sent_from_there():
    net = InsertAllReduce().apply(mlp("float32"))

    def work(c):
        sent, hook = [], Buckets()
        whole = c.start_all_reduce

        def start(array):
            sent.append((address(array), array.nbytes))
            return whole(array)

        c.start_all_reduce = start
        scope = Scope()
        initialize(net, scope, OpContext(seed=1))
        for name, value in rows(0, 4, "float32").items():
            scope.var(name).set(value)
        PlainNet(net).run(scope, OpContext(communicator=c, hooks=[hook]))
        (names,) = hook.joined
        end = hook.places[names[0]]
        for name in names:
            assert hook.places[name] == end
            end += hook.sizes[name]
        begin = hook.places[names[0]]
        return (begin, end - begin) in sent, names

    for is_sent, names in DryWorld(2).run(work):
        assert is_sent
        assert names == ("fc_1.w@GRAD", "fc_1.b@GRAD", "fc_0.w@GRAD", "fc_0.b@GRAD")


def test_gradients_that_are_asked_for_hold_the_sums():
    net = InsertAllReduce(weight="sum").apply(mlp("float64"))

    def work(c, passes=True):
        scope = Scope()
        initialize(net, scope, OpContext(seed=1))
        for name, value in rows(c.rank if c else 0, 4, "float64").items():
            scope.var(name).set(value)
        live = ["fc_0.w@GRAD", "fc_1.b@GRAD"]
        used = net if c else mlp("float64")
        PlainNet(used).run(scope, OpContext(communicator=c, live_out=live))
        return [scope.get(name).array.copy() for name in live]

    first, second = DryWorld(2).run(work)
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    alone = work(None)
    assert not np.allclose(first[0], alone[0])


# -- refusals --------------------------------------------------------------------------------------


def test_refusals():
    with pytest.raises(GradientError, match="add_backward_ops and add_optimizer_ops first"):
        InsertAllReduce().apply(world_net())
    with pytest.raises(GradientError, match="summed over ranks already, by op"):
        InsertAllReduce().apply(InsertAllReduce().apply(mlp("float32")))
    with pytest.raises(GradientError, match="summed over ranks already, by op"):
        InsertAllReduce().apply(InsertAllReduce().apply(words("float32")))
    with pytest.raises(VariableError, match="no variable 'wieght'"):
        InsertAllReduce(weight="wieght").apply(mlp("float32"))
    with pytest.raises(AttributeTypeError, match="bucket_bytes must be above 0"):
        InsertAllReduce(bucket_bytes=0)
    with pytest.raises(VariableError, match="no variable 'w8'"):
        SyncBatchNorm("w8").apply(normalized("float32"))


def test_a_loss_that_is_no_mean_wants_a_word():
    b = opscope.NetBuilder("n")
    y = b.fc(b.input("x", [-1, 6]), size=1)
    b.scale(b.mean(b.square(y)), scale=2.0, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1)
    with pytest.raises(GradientError, match="'loss' is made by scale, .* say weight=\"sum\""):
        InsertAllReduce().apply(b.op_list)
    net = InsertAllReduce(weight="mean").apply(b.op_list)
    assert '{mode="mean"}' in lines(net, "all_reduce")[0]


def test_a_sum_is_added():
    b = opscope.NetBuilder("n")
    y = b.fc(b.input("x", [-1, 6]), size=1)
    b.reduce_sum(b.square(y), name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1)
    (line,) = lines(InsertAllReduce().apply(b.op_list), "all_reduce")
    assert "weight" not in line and "mode" not in line


def test_roles_keep_forward_operators_together():
    net = InsertAllReduce().apply(mlp("float32"))
    plain = PlainNet(net)
    assert all(op.role == FORWARD for op in plain.operators[: plain.last_forward_op + 1])
    assert plain.operators[plain.last_forward_op + 1].role != FORWARD
    assert make_op("mean", {"x": "a"}, {"out": "b"}).role == FORWARD
