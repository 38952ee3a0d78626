"""Recursive nets inside other nets, over changing trees, and with all sorts of operators inside."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import RunError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import RECURRENT, make_op, make_var
from opscope.framework.ir.messages import parse_net, serialize_net
from opscope.framework.ir.op_list import Link, MemoryDecl, OpList, StepDecl
from opscope.framework.ir.registry import load_operators
from opscope.framework.loops.recurrent.net import recurrent_op
from opscope.framework.loops.trees.bank import Bank
from opscope.framework.loops.trees.net import recursive_op
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.plain_net import PlainNet
from tree_cells import (
    H,
    binary_desc,
    binary_values,
    weighed_desc,
    weighed_reference,
    weighed_values,
)
from tree_nets import check_gradients, random_trees, run_tree, set_all, tree_desc, walk


@pytest.fixture(autouse=True, scope="module")
def real_operators(toys: None) -> None:
    load_operators()


def plain_around(desc):
    """x -> scale -> recursive -> square, over temporaries, statics computed by operators too."""
    net = PlainNet()
    net.add_op("scale", {"x": "RAW"}, {"out": "X"}, {"scale": 2.0})
    net.add_op("tanh", {"x": "RAW_U"}, {"out": "U"})
    net.add_op(recursive_op(desc, "kept"))
    net.add_op("square", {"x": "OUT"}, {"out": "SQUARE"})
    net.add_op("reduce_sum", {"x": "SQUARE"}, {"out": "cost"})
    return net


def plain_values(rng, parents):
    given = weighed_values(rng, parents, 3)
    given["RAW"], given["RAW_U"] = given.pop("X"), given.pop("U")
    return given


def test_inside_a_plain_net_over_changing_forests():
    net, scope = plain_around(weighed_desc()), Scope()
    wrt = ["RAW", "RAW_U", "V", "B0", "B1"]
    grads = net.add_backward_ops(["cost"], wrt)
    forward = plain_around(weighed_desc())
    rng = np.random.default_rng(8)
    context = OpContext(live_out=[*grads.values(), "cost"])
    for sizes in ([4, 7, 2], [9, 9, 9], [4, 7, 2], [1, 1, 1], [30, 5, 11]):
        parents, offsets = random_trees(rng, sizes)
        given = plain_values(rng, parents)
        set_all(scope, given, {"parent": offsets})
        net.run(scope, context)
        found = {name: scope.numpy(grad) for name, grad in grads.items()}
        other = Scope()

        def cost(changed, other=other, given=given, offsets=offsets):
            set_all(other, {**given, **changed}, {"parent": offsets})
            forward.run(other, OpContext(live_out=["cost"], train=False))
            return float(other.numpy("cost"))

        for name in wrt:
            direction = rng.normal(size=given[name].shape)
            ahead = cost({name: given[name] + 1e-6 * direction})
            wanted = (ahead - cost({name: given[name] - 1e-6 * direction})) / 2e-6
            got = float((found[name] * direction).sum())
            assert abs(got - wanted) <= 1e-6 * max(1.0, abs(wanted)), (sizes, name)


def test_forward_and_backward_run_by_themselves():
    net = plain_around(weighed_desc())
    grads = net.add_backward_ops(["cost"], ["V", "RAW"])
    parents, offsets = random_trees(np.random.default_rng(1), [8, 3, 6])
    given = plain_values(np.random.default_rng(2), parents)
    found = []
    for parts in (((-1, -1),), ((0, 5), (5, -1))):
        scope = Scope()
        set_all(scope, given, {"parent": offsets})
        for begin, end in parts:
            net.run(scope, OpContext(), begin, end)
        found.append([scope.numpy(name) for name in grads.values()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert scope.get("kept").step_scopes


def test_a_gradient_of_a_run_that_is_gone_is_refused():
    net = plain_around(weighed_desc())
    net.add_backward_ops(["cost"], ["V"])
    parents, offsets = random_trees(np.random.default_rng(1), [8, 3, 6])
    scope = Scope()
    set_all(scope, plain_values(np.random.default_rng(2), parents), {"parent": offsets})
    net.run(scope, OpContext(), 0, 5)
    scope.get("kept").array[...] = 77
    with pytest.raises(RunError, match="'kept' is not what the last forward run left"):
        net.run(scope, OpContext(), 5, -1)


def test_two_trees_with_one_net_do_not_mix():
    """The same cell twice, on the outputs of itself: step scopes are the operator's own."""
    net = PlainNet()
    net.add_op(recursive_op(weighed_desc(), "kept_1"))
    again = recursive_op(weighed_desc(), "kept_2")
    net.add_op(again.renamed({"X": "OUT", "OUT": "OUT_2", "ROOT": "ROOT_2"}))
    grads = net.add_backward_ops({"OUT_2": "seed"}, ["X", "V"])
    rng = np.random.default_rng(6)
    parents, offsets = random_trees(rng, [8, 3])
    given = weighed_values(rng, parents, 2) | {"seed": rng.normal(size=(11, H))}
    scope = Scope()
    set_all(scope, given, {"parent": offsets})
    net.run(scope, OpContext(live_out=[*grads.values(), "OUT_2"]))

    def loss(changed):
        values = given | changed
        first = weighed_reference(values, offsets)["OUT"]
        second = weighed_reference(values | {"X": first}, offsets)["OUT"]
        return float((second * given["seed"]).sum())

    for name in ("X", "V"):
        direction = rng.normal(size=given[name].shape)
        ahead, back = (loss({name: given[name] + s * direction}) for s in (1e-6, -1e-6))
        got = float((scope.numpy(grads[name]) * direction).sum())
        assert abs(got - (ahead - back) / 2e-6) < 1e-6 * max(1.0, abs(got))


def test_saved_text_gives_the_same_net():
    rng = np.random.default_rng(2)
    parents, offsets = random_trees(rng, [5, 6], arity=2)
    given = binary_values(rng, parents, 2)
    desc = binary_desc()
    loaded = parse_net(serialize_net(desc))
    one, other = (run_tree(d, given, ["OUT"], offsets)["OUT"] for d in (desc, loaded))
    np.testing.assert_array_equal(one, other)


def test_forward_runs_keep_one_scope_for_each_number_of_rows():
    parents = np.arange(500) - 1  # a chain: 500 heights of one node
    given = weighed_values(np.random.default_rng(0), parents, 1)
    scope, net = Scope(), Net.create(weighed_desc())
    set_all(scope, given, {"parent": np.array([0, 500])})
    net.run(scope, OpContext(live_out=["OUT"]))
    (bank,) = (held for held in scope.bound.values() if isinstance(held, Bank))
    assert sum(map(len, bank.batches.values())) == 2  # one of the node net, one of the child net


def test_outer_variables_of_the_same_names_are_left_alone():
    rng = np.random.default_rng(2)
    parents = np.array([-1])
    given = binary_values(rng, parents, 1)
    scope = Scope()
    for name in ("h", "s2", "left", "x"):
        scope.var(name).set(np.full((1, H), 7.0))
    run_tree(binary_desc(), given, ["OUT"], np.array([0, 1]), scope)
    for name in ("h", "s2", "left", "x"):
        assert (scope.numpy(name) == 7).all()


def test_unlinked_names_are_found_outside():
    desc = weighed_desc(statics={})
    rng = np.random.default_rng(2)
    parents, offsets = random_trees(rng, [5, 6])
    given = weighed_values(rng, parents, 2)
    wanted = weighed_reference(given, offsets)["OUT"]
    given["u"], given["v"] = given.pop("U"), given.pop("V")
    np.testing.assert_allclose(run_tree(desc, given, ["OUT"], offsets)["OUT"], wanted)


def test_float32_stays_float32():
    rng = np.random.default_rng(3)
    parents, offsets = random_trees(rng, [9, 4])
    given = weighed_values(rng, parents, 2)
    narrow = {k: v if k == "parent" else v.astype("float32") for k, v in given.items()}
    found = run_tree(weighed_desc(dtype="float32"), narrow, ["OUT"], offsets)["OUT"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, weighed_reference(given, offsets)["OUT"], rtol=1e-5)


def test_tables_inside_get_dense_gradients():
    ops = [
        ("embedding", {"ids": "id", "w": "table"}, {"out": "e"}, {"sparse": True}),
        ("add", {"x": "e", "y": "below"}, {"out": "t"}),
        ("tanh", {"x": "t"}, {"out": "h"}),
    ]
    desc = tree_desc(
        ops,
        ins={"ID": "id"},
        outs={"OUT": "h"},
        statics={"TABLE": "table"},
        memories=[{"state": "h", "previous": "below"}],
        shapes={"below": [-1, H]},
    )
    rng = np.random.default_rng(3)
    parents, offsets = random_trees(rng, [9, 4])
    values = {
        "parent": parents,
        "ID": rng.integers(0, 5, size=13),
        "TABLE": rng.normal(size=(5, H)),
    }
    check_gradients(desc, values, {"OUT": rng.normal(size=(13, H))}, ["TABLE"], offsets)


def test_dropout_inside_uses_its_masks_in_the_gradient():
    ops = [
        ("add", {"x": "x", "y": "below"}, {"out": "t"}),
        ("dropout", {"x": "t"}, {"out": "h", "mask": "mask"}, {"p": 0.5}),
    ]
    desc = tree_desc(
        ops,
        ins={"X": "x"},
        outs={"OUT": "h"},
        memories=[{"state": "h", "previous": "below"}],
        shapes={"below": [-1, 1]},
    )
    parents = np.array([-1, 0, 0, 1, 1, 2])
    net, scope = Net.create(desc), Scope()
    grads = net.add_backward_ops({"OUT": "seed"}, ["X"])
    seed = np.zeros((6, 1))
    seed[0] = 1
    set_all(scope, {"parent": parents, "X": np.ones((6, 1)), "seed": seed}, {})
    sums = []
    for number in range(8):
        net.run(scope, OpContext(live_out=[*grads.values(), "OUT"], seed=number))
        # linear in x, so the root is its gradient times x, if the masks are the same
        assert scope.numpy(grads["X"]).sum() == scope.numpy("OUT")[0, 0]
        sums.append(scope.numpy("OUT")[0, 0])
    assert len(set(sums)) > 1


def test_one_net_runs_from_several_threads():
    net = Net.create(weighed_desc())
    rng = np.random.default_rng(0)
    jobs = []
    for _ in range(4):
        parents, offsets = random_trees(rng, rng.integers(1, 20, size=5))
        jobs.append((weighed_values(rng, parents, 5), offsets))

    def work(job):
        given, offsets = job
        scope = Scope()
        set_all(scope, given, {"parent": offsets})
        for _ in range(10):
            net.run(scope, OpContext(live_out=["OUT"]))
        return scope.numpy("OUT")

    with ThreadPoolExecutor(4) as pool:
        for job, found in zip(jobs, pool.map(work, jobs), strict=True):
            wanted = weighed_reference(*job)["OUT"]
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("way", ["fast", "steps"])
def test_a_tree_at_each_step_of_a_sequence(way, monkeypatch):
    """A recursive net in the step net of a recurrent one: sequences of trees."""
    monkeypatch.setenv("OPSCOPE_RECURRENT", way)
    inner = tree_desc(
        [("add", {"x": "x", "y": "below"}, {"out": "s"}), ("tanh", {"x": "s"}, {"out": "h"})],
        ins={"row": "x"},
        memories=[{"state": "h", "previous": "below", "final": "root"}],
        shapes={"below": [-1, H]},
        parents="up",
    )
    desc = OpList(name="sequence", type=RECURRENT)
    step = StepDecl()
    desc.steps.append(step)
    step.in_links.append(Link("X", "row"))
    step.in_links.append(Link("UP", "up"))
    step.static_links.append(Link("U", "u"))
    step.out_links.append(Link("OUT", "state"))
    step.memories.append(MemoryDecl(state="state", previous="before"))
    step.net.vars.append(make_var("before", [-1, H], "float64"))
    step.net.ops.extend(
        [
            recursive_op(inner, "kept"),
            make_op("matmul", {"x": "before", "y": "u"}, {"out": "bu"}),
            make_op("add", {"x": "bu", "y": "root"}, {"out": "a"}),
            make_op("tanh", {"x": "a"}, {"out": "state"}),
        ]
    )
    rng = np.random.default_rng(0)
    parents, trees = random_trees(rng, [3, 1, 4, 2, 2])
    sequences = np.array([0, 3, 5])
    values = {"X": rng.normal(size=(12, H)), "U": rng.normal(size=(H, H))}
    seed = rng.normal(size=(5, H))

    def reference(x, u):
        def node(row, below):
            return np.tanh(x[row] + sum((h for _, h in below), np.zeros(H)))

        root_rows = np.flatnonzero(parents == -1)
        roots = np.array(walk(parents, trees, node))[root_rows]
        out = np.zeros((5, H))
        for begin, end in zip(sequences[:-1], sequences[1:], strict=True):
            state = np.zeros(H)
            for step in range(begin, end):
                state = out[step] = np.tanh(state @ u + roots[step])
        return out

    net, scope = PlainNet(), Scope()
    net.add_op(recurrent_op(desc))
    grads = net.add_backward_ops({"OUT": "seed"}, ["X", "U"])
    scope.var("X").set(values["X"], (sequences, trees))
    scope.var("UP").set(parents, (sequences, trees))
    scope.var("U").set(values["U"])
    scope.var("seed").set(seed, (sequences,))
    net.run(scope, OpContext(live_out=[*grads.values(), "OUT"]))
    np.testing.assert_allclose(scope.numpy("OUT"), reference(values["X"], values["U"]), rtol=1e-10)
    for name, grad in grads.items():
        direction = rng.normal(size=values[name].shape)
        ahead, back = (
            (reference(*(values | {name: values[name] + s * direction}).values()) * seed).sum()
            for s in (1e-6, -1e-6)
        )
        got = (scope.numpy(grad) * direction).sum()
        assert abs(got - (ahead - back) / 2e-6) < 1e-6 * max(1.0, abs(got))
