"""Recursive nets against a plain recursion in NumPy, gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.context import OpContext
from opscope.framework.desc import parse_net, serialize_net
from opscope.framework.errors import RunError
from opscope.framework.forest import batches
from opscope.framework.net import Net
from opscope.framework.plain_net import PlainNet
from opscope.framework.recursive_net import recursive_op
from opscope.framework.registry import load_operators
from opscope.framework.scope import Scope
from tree_nets import check_gradients, random_trees, run_tree, set_all, tree_desc, walk

D, H = 4, 3


@pytest.fixture(autouse=True, scope="module")
def real_operators(toys: None) -> None:
    load_operators()


def binary_desc(**changes):
    """h = tanh(x w + left u + right v) with boot values of both kinds, and m = left' * x m."""
    ops = [
        ("matmul", {"x": "x", "y": "w"}, {"out": "xw"}),
        ("matmul", {"x": "left", "y": "u"}, {"out": "lu"}),
        ("matmul", {"x": "right", "y": "v"}, {"out": "rv"}),
        ("add", {"x": "xw", "y": "lu"}, {"out": "s1"}),
        ("add", {"x": "s1", "y": "rv"}, {"out": "s2"}),
        ("tanh", {"x": "s2"}, {"out": "h"}),
        ("mul", {"x": "h", "y": "m_left"}, {"out": "m"}),
    ]
    given = {
        "ins": {"X": "x"},
        "outs": {"OUT": "h", "M": "m"},
        "statics": {"W": "w", "U": "u", "V": "v"},
        "memories": [
            {"state": "h", "previous": "left", "child": 0, "boot": "B0"},
            {"state": "h", "previous": "right", "child": 1, "boot": "B1", "final": "ROOT"},
            {"state": "m", "previous": "m_left", "boot_value": 0.5, "final": "MROOT"},
        ],
        "shapes": dict.fromkeys(("left", "right", "m_left"), [-1, H]),
        "arity": 2,
    }
    return tree_desc(ops, **(given | changes))


def binary_values(rng, parents, trees):
    return {
        "parent": parents,
        "X": rng.normal(size=(len(parents), D)),
        "W": rng.normal(size=(D, H)),
        "U": rng.normal(size=(H, H)),
        "V": rng.normal(size=(H, H)),
        "B0": rng.normal(size=(H,)),
        "B1": rng.normal(size=(trees, H)),
    }


def binary_reference(values, offsets, positions=None):
    tree = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))

    def node(row, below):
        place = {number: result for number, (_, result) in enumerate(below)}
        if positions is not None:
            place = {int(positions[child]): result for child, result in below}
        left, m_left = place.get(0, (values["B0"], np.full(H, 0.5)))
        right, _ = place.get(1, (values["B1"][tree[row]], None))
        h = np.tanh(values["X"][row] @ values["W"] + left @ values["U"] + right @ values["V"])
        return h, h * m_left

    results = walk(values["parent"], offsets, node)
    h, m = (np.array(part) for part in zip(*results, strict=True))
    roots = np.flatnonzero(values["parent"] == -1)
    return {"OUT": h, "M": m, "ROOT": h[roots], "MROOT": m[roots]}


def weighed_desc(**changes):
    """A child-sum cell whose children are weighed by a gate of child and parent."""
    ops = [
        ("matmul", {"x": "h_sum", "y": "u"}, {"out": "hu"}),
        ("add", {"x": "x", "y": "hu"}, {"out": "s"}),
        ("tanh", {"x": "s"}, {"out": "candidate"}),
        ("add", {"x": "candidate", "y": "kept"}, {"out": "c"}),
        ("sigmoid", {"x": "c"}, {"out": "h"}),
    ]
    pair = [
        ("matmul", {"x": "h_child", "y": "v"}, {"out": "hv"}),
        ("add", {"x": "hv", "y": "x"}, {"out": "gate_in"}),
        ("sigmoid", {"x": "gate_in"}, {"out": "gate"}),
        ("mul", {"x": "gate", "y": "c_child"}, {"out": "kept_part"}),
    ]
    given = {
        "ins": {"X": "x"},
        "outs": {"OUT": "h"},
        "statics": {"U": "u", "V": "v"},
        "memories": [
            {"state": "h", "previous": "h_sum", "boot": "B0", "final": "ROOT"},
            {"state": "kept_part", "previous": "kept", "boot": "B1"},
        ],
        "shapes": dict.fromkeys(("h_sum", "kept"), [-1, H]),
        "pair": pair,
        "child_links": {"h": "h_child", "c": "c_child"},
    }
    return tree_desc(ops, **(given | changes))


def weighed_values(rng, parents, trees):
    return {
        "parent": parents,
        "X": rng.normal(size=(len(parents), H)),
        "U": rng.normal(size=(H, H)),
        "V": rng.normal(size=(H, H)),
        "B0": rng.normal(size=(trees, H)),
        "B1": rng.normal(size=(H,)),
    }


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def weighed_reference(values, offsets):
    tree = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))

    def node(row, below):
        x = values["X"][row]
        h_sum, kept = values["B0"][tree[row]], values["B1"]
        if below:
            h_sum = sum(h for _, (h, _) in below)
            kept = sum(sigmoid(h @ values["V"] + x) * c for _, (h, c) in below)
        c = np.tanh(x + h_sum @ values["U"]) + kept
        return sigmoid(c), c

    h = np.array([result[0] for result in walk(values["parent"], offsets, node)])
    return {"OUT": h, "ROOT": h[np.flatnonzero(values["parent"] == -1)]}


CASES = {
    "binary": (binary_desc, binary_values, binary_reference, 2),
    "weighed": (weighed_desc, weighed_values, weighed_reference, 0),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.mark.parametrize("sizes", [[1], [5, 1, 9, 40], [2, 2, 2]])
def test_equal_to_a_plain_recursion(case, sizes):
    desc, values, reference, arity = case
    rng = np.random.default_rng(len(sizes))
    parents, offsets = random_trees(rng, sizes, arity=arity)
    given = values(rng, parents, len(sizes))
    wanted = reference(given, offsets)
    found = run_tree(desc(), given, list(wanted), offsets)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-14)


def test_a_batch_equals_one_tree_at_a_time(case):
    desc, values, reference, arity = case
    rng = np.random.default_rng(3)
    sizes = [7, 1, 12, 3]
    parents, offsets = random_trees(rng, sizes, arity=arity)
    given = values(rng, parents, len(sizes))
    names = list(reference(given, offsets))
    whole = run_tree(desc(), given, names, offsets)
    scope = Scope()
    for tree, (begin, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        own = dict(given)
        for name in ("parent", "X"):
            own[name] = given[name][begin:end]
        for name, value in given.items():
            if name.startswith("B") and value.ndim == 2:
                own[name] = value[tree : tree + 1]
        single = run_tree(desc(), own, names, np.array([0, end - begin]), scope)
        for name in names:
            rows = slice(tree, tree + 1) if name.endswith("ROOT") else slice(begin, end)
            np.testing.assert_allclose(single[name], whole[name][rows], rtol=1e-12, atol=1e-14)


def test_gradients(case):
    desc, values, reference, arity = case
    rng = np.random.default_rng(11)
    sizes = [6, 1, 21]
    parents, offsets = random_trees(rng, sizes, arity=arity)
    given = values(rng, parents, len(sizes))
    weights = {n: rng.normal(size=v.shape) for n, v in reference(given, offsets).items()}
    wrt = [name for name in given if name != "parent"]
    check_gradients(desc(), given, weights, wrt, offsets)


@pytest.mark.parametrize("arriving", ["OUT", "ROOT"])
@pytest.mark.parametrize("wrt", [["X"], ["U"], ["B0"], ["B1"], ["V", "X"]])
def test_gradients_of_a_part(case, arriving, wrt):
    desc, values, reference, arity = case
    rng = np.random.default_rng(12)
    parents, offsets = random_trees(rng, [6, 9], arity=arity)
    given = values(rng, parents, 2)
    shape = reference(given, offsets)[arriving].shape
    check_gradients(desc(), given, {arriving: rng.normal(size=shape)}, wrt, offsets)


def test_plain_sums_and_a_forest_without_offsets():
    ops = [
        ("add", {"x": "x", "y": "below"}, {"out": "t"}),
        ("scale", {"x": "t"}, {"out": "h"}, {"scale": 0.5}),
    ]
    memories = [{"state": "h", "previous": "below", "boot": "B"}]
    desc = tree_desc(ops, ins={"X": "x"}, outs={"OUT": "h"}, memories=memories)
    parents = np.array([-1, 0, 0, -1, 3, 4, 0, 2])
    values = {"parent": parents, "X": np.arange(8.0)[:, None] + 1, "B": np.array([3.0])}

    def node(row, below):
        return 0.5 * (values["X"][row] + (sum(r for _, r in below) if below else values["B"]))

    wanted = np.array(walk(parents, None, node))
    np.testing.assert_allclose(run_tree(desc, values, ["OUT"])["OUT"], wanted)
    check_gradients(desc, values, {"OUT": np.arange(8.0)[:, None]}, ["X", "B"])


def test_many_children_of_one_node():
    rng = np.random.default_rng(0)
    parents = np.array([-1] + [0] * 30 + [5] * 7)
    given = weighed_values(rng, parents, 1)
    offsets = np.array([0, len(parents)])
    wanted = weighed_reference(given, offsets)
    np.testing.assert_allclose(
        run_tree(weighed_desc(), given, ["OUT"], offsets)["OUT"], wanted["OUT"], rtol=1e-12
    )


def test_a_chain_of_a_thousand_nodes():
    rng = np.random.default_rng(0)
    parents = np.arange(1000) - 1
    given = binary_values(rng, parents, 1)
    found = run_tree(binary_desc(), given, ["OUT"], np.array([0, 1000]))["OUT"]
    below = given["B0"]
    for row in reversed(range(1000)):
        total = given["X"][row] @ given["W"] + below @ given["U"] + given["B1"][0] @ given["V"]
        below = np.tanh(total)
        np.testing.assert_allclose(found[row], below, rtol=1e-10)


def test_positions_leave_gaps():
    rng = np.random.default_rng(4)
    parents = np.array([-1, 0, 1, 1, -1, 0, 0])
    offsets = np.array([0, 4, 7])
    given = binary_values(rng, parents, 2) | {"position": np.array([0, 1, 1, 0, 7, 1, 0])}
    # parents are counted from the tree's first row; the reference wants the same
    wanted = binary_reference(given, offsets, given["position"])
    desc = binary_desc(positions="position")
    found = run_tree(desc, given, list(wanted), offsets)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12)
    weights = {"OUT": rng.normal(size=(7, H))}
    check_gradients(desc, given, weights, ["X", "U", "V", "B0", "B1"], offsets)


# -- inside a plain net ----------------------------------------------------------------------------


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
    context = OpContext(keep=[*grads.values(), "cost"])
    for sizes in ([4, 7, 2], [9, 9, 9], [4, 7, 2], [1, 1, 1], [30, 5, 11]):
        parents, offsets = random_trees(rng, sizes)
        given = plain_values(rng, parents)
        set_all(scope, given, {"parent": offsets})
        net.run(scope, context)
        found = {name: scope.numpy(grad) for name, grad in grads.items()}
        other = Scope()

        def cost(changed, other=other, given=given, offsets=offsets):
            set_all(other, {**given, **changed}, {"parent": offsets})
            forward.run(other, OpContext(keep=["cost"], train=False))
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
    renames = {"X": "OUT", "OUT": "OUT_2", "ROOT": "ROOT_2"}
    for slots in (again.inputs, again.outputs):
        for slot in slots:
            slot.vars[:] = [renames.get(name, name) for name in slot.vars]
    net.add_op(again)
    grads = net.add_backward_ops({"OUT_2": "seed"}, ["X", "V"])
    rng = np.random.default_rng(6)
    parents, offsets = random_trees(rng, [8, 3])
    given = weighed_values(rng, parents, 2) | {"seed": rng.normal(size=(11, H))}
    scope = Scope()
    set_all(scope, given, {"parent": offsets})
    net.run(scope, OpContext(keep=[*grads.values(), "OUT_2"]))

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
    net.run(scope, OpContext(keep=["OUT"]))
    (bank,) = (b for key, b in scope.bound.items() if key[0] == "recursive")
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


@pytest.mark.parametrize("switch", ["OPSCOPE_FUSE", "OPSCOPE_REUSE", "OPSCOPE_INPLACE"])
def test_switches_change_nothing(case, switch, monkeypatch):
    desc, values, reference, arity = case
    rng = np.random.default_rng(3)
    parents, offsets = random_trees(rng, [9, 4], arity=arity)
    given = values(rng, parents, 2)
    monkeypatch.setenv(switch, "0")
    weights = {"OUT": rng.normal(size=(13, H))}
    check_gradients(desc(), given, weights, ["X", "U"], offsets)


def test_batches_cover_a_range_with_few_sizes():
    sizes = set()
    for end in range(2000):
        pieces = list(batches(3, 3 + end))
        flat = [row for begin, stop in pieces for row in range(begin, stop)]
        assert flat == list(range(3, 3 + end))
        assert len(pieces) <= 4
        sizes |= {stop - begin for begin, stop in pieces}
    assert len(sizes) < 75
