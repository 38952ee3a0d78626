"""Forests and their schedules; what recursive nets refuse, with the names in the message."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import (
    FormatError,
    GradientError,
    OpscopeError,
    RunError,
    ShapeError,
    TreeError,
    VariableError,
)
from opscope.framework.base.scope import Scope
from opscope.framework.ir.op_list import StepDecl
from opscope.framework.ir.printer import net_text
from opscope.framework.ir.registry import load_operators
from opscope.framework.loops.trees.forest import Trees, batches, make_forest_schedule
from opscope.framework.loops.trees.net import recursive_op
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.plain_net import PlainNet
from tree_nets import random_trees, run_tree, set_all, tree_desc

ADD = [("add", {"x": "x", "y": "below"}, {"out": "h"})]
MEMORY = {"state": "h", "previous": "below"}
PAIR = [("scale", {"x": "child"}, {"out": "part"})]


@pytest.fixture(autouse=True, scope="module")
def real_operators(toys: None) -> None:
    load_operators()


def sums(**changes):
    """h = x + sum of the children's h"""
    given = {
        "ops": ADD,
        "ins": {"X": "x"},
        "outs": {"OUT": "h"},
        "memories": [MEMORY],
        "shapes": {"below": [-1, 2]},
    }
    return tree_desc(**(given | changes))


# -- forests ---------------------------------------------------------------------------------------


def test_nested_tuples_give_parents_in_front_of_children():
    trees = Trees.from_nested([("+", 1, ("*", 2, 3)), 7, ("neg", None, ("f", "a"))])
    assert trees.labels == ["+", 1, "*", 2, 3, 7, "neg", "f", "a"]
    assert trees.parents.data.tolist() == [-1, 0, 0, 2, 2, -1, -1, 0, 1]
    assert trees.positions.data.tolist() == [0, 0, 1, 0, 1, 0, 0, 1, 0]
    assert trees.parents.levels[0].tolist() == [0, 5, 6, 9]


def test_nested_tuples_may_be_deep():
    tree = "leaf"
    for _ in range(5000):
        tree = ("f", tree)
    trees = Trees.from_nested([tree])
    schedule = make_forest_schedule(trees.parents.data, trees.parents.levels[0], arity=1)
    assert schedule.heights == 5001


@pytest.mark.parametrize(
    ("trees", "text"),
    [
        ([], "no trees"),
        ([1, None], "tree 1 is None"),
        ([("a", "b", ("c", ()))], "tree 0: node 3 is an empty tuple"),
    ],
)
def test_nested_tuples_that_are_no_trees(trees, text):
    with pytest.raises(TreeError, match=text):
        Trees.from_nested(trees)


@pytest.mark.parametrize("arity", [0, 2])
@pytest.mark.parametrize("seed", range(5))
def test_schedules_keep_their_promises(seed, arity):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, size=6)
    local, offsets = random_trees(rng, sizes, arity=arity)
    tree = np.repeat(np.arange(6), sizes)
    parents = np.where(local < 0, -1, local + offsets[tree])
    s = make_forest_schedule(local, offsets, arity=arity)
    nodes = len(parents)
    assert (s.rows[s.places] == np.arange(nodes)).all()
    assert (s.tree == tree[s.rows]).all()
    assert (s.rows[s.roots] == np.flatnonzero(parents < 0)).all()
    below = s.parent < nodes
    assert (s.rows[s.parent[below]] == parents[s.rows[below]]).all()
    height = np.searchsorted(s.starts, np.arange(nodes), side="right") - 1
    for place in range(nodes):
        children = np.flatnonzero(s.parent == place)
        assert height[place] == (max(height[children]) + 1 if len(children) else 0)
        order = np.argsort(s.rows[children])
        assert s.position[children[order]].tolist() == list(range(len(children)))
        for position, child in enumerate(children[order]):
            assert s.child(position)[place] == child
    assert (s.edge_parent == s.parent[s.edge_child]).all()
    assert (s.edge[s.edge_child] == np.arange(len(s.edge_child))).all()
    for level, bundles in enumerate(s.bundles):
        for ordinal, (begin, end) in enumerate(bundles):
            first = s.starts[level]
            assert s.edge_parent[begin:end].tolist() == list(range(first, first + end - begin))
            assert (s.position[s.edge_child[begin:end]] == ordinal).all()


@pytest.mark.parametrize(
    ("parents", "offsets", "given", "text"),
    [
        ([0], [0, 1], {}, "tree 0: node 0 is its own ancestor: 0 -> 0"),
        ([-1, 2, 3, 1], [0, 1, 4], {}, "tree 1: node 1 has the parent 3, but the tree has 3 nodes"),
        ([-1, 1, 2, 0], [0, 1, 4], {}, "tree 1: node [012] is its own ancestor: "),
        ([1, 2, 0, -1], None, {}, "forest: node 2 is its own ancestor: 2 -> 0 -> 1 -> 2"),
        (list(range(1, 9)) + [0], None, {}, "-> ..."),
        ([-1, 0, -1, 0, -1], [0, 2, 5], {}, "tree 1 has several roots: nodes 0 and 2"),
        ([-1, 0, 0, 0], [0, 4], {"arity": 2}, "tree 0: node 0 has 3 children, more than 2"),
        ([-1, -3], None, {}, "forest: node 1 has the parent -3, but the forest has 2 nodes"),
        ([-1, -1], [0, 1, 1, 2], {}, "tree 1 has no nodes"),
        (
            [-1, 0],
            [0, 2],
            {"arity": 2, "positions": [0, 2]},
            "tree 0: node 1 is child 2 of its parent, want 0 <= position < 2",
        ),
        (
            [-1, -1, 0, 0],
            [0, 1, 4],
            {"arity": 2, "positions": [0, 0, 1, 1]},
            "tree 1: node 1 and node 2 are both child 1 of node 0",
        ),
    ],
)
def test_no_forest(parents, offsets, given, text):
    with pytest.raises(TreeError, match=text):
        make_forest_schedule(parents, offsets, **given)


def test_batches_cover_a_range_with_few_sizes():
    sizes = set()
    for end in range(2000):
        pieces = list(batches(3, 3 + end))
        flat = [row for begin, stop in pieces for row in range(begin, stop)]
        assert flat == list(range(3, 3 + end))
        assert len(pieces) <= 4
        sizes |= {stop - begin for begin, stop in pieces}
    assert len(sizes) < 75


# -- descriptions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"parents": ""}, FormatError, "names no variable of parents"),
        ({"positions": "p"}, FormatError, "has positions of children, but no arity"),
        ({"arity": 1, "pair": PAIR}, FormatError, "has an arity and a child net"),
        ({"child_links": {"h": "child"}}, FormatError, "has child links, no child net"),
        ({"memories": [MEMORY | {"delay": 2}]}, FormatError, "memory 'h' has delay 2"),
        ({"memories": [MEMORY | {"child": 1}]}, FormatError, "'h' is of child 1, but arity is 0"),
        (
            {"memories": [MEMORY | {"state": "hh"}]},
            VariableError,
            r"memory 'hh' is written by no operator \(did you mean h\?\)",
        ),
        (
            {"memories": [MEMORY, MEMORY]},
            VariableError,
            "'below' of the node net is linked twice",
        ),
        ({"outs": {"OUT": "x"}}, VariableError, "its out link takes 'x', which no operator"),
        (
            {"ops": [*ADD, ("scale", {"x": "h"}, {"out": "x"})]},
            VariableError,
            "'x' comes from outside, but the node net writes it",
        ),
        (
            {"pair": PAIR, "child_links": {"g": "child"}},
            VariableError,
            "its child link takes 'g', which no operator of the node net writes",
        ),
        (
            {
                "pair": PAIR,
                "child_links": {"h": "child"},
                "memories": [{"state": "part", "previous": "below", "final": "F"}],
            },
            FormatError,
            "memory 'part' is of pairs, so a root has no final value",
        ),
    ],
)
def test_descriptions_that_mean_nothing(changes, error, text, monkeypatch):
    monkeypatch.setenv("OPSCOPE_VERIFY", "0")
    with pytest.raises(error, match=f"recursive net 'trees'.*{text}"):
        recursive_op(sums(**changes))


def test_a_recursive_net_wants_one_step_net():
    desc = sums()
    desc.steps.append(StepDecl())
    with pytest.raises(OpscopeError, match="wants a RECURSIVE net with 1 step net"):
        recursive_op(desc)


# -- values ----------------------------------------------------------------------------------------

VALUES = {"parent": np.array([-1, 0, 0]), "X": np.ones((3, 2))}


@pytest.mark.parametrize(
    ("changes", "values", "text"),
    [
        ({}, {"X": np.ones((4, 2))}, "rows of 'parent' and 'X' must agree and are 3, 4"),
        ({}, {"X": np.float64(1)}, "'X' is a scalar, want a row for each node"),
        ({}, {"parent": np.zeros(3)}, "parent wants an integer dtype"),
        ({}, {"parent": np.zeros((3, 1), int)}, "parent wants 1 dimensions and has 2"),
        ({}, {"X": np.ones((3, 3))}, "in its node net: op 0 .add.*do not broadcast"),
        ({"shapes": {}}, {}, "memory 'h' has neither a boot variable nor a declared shape"),
        ({"shapes": {"below": [-1, 1]}}, {}, r"memory 'h' is float64\[\?, 2\] and 'below' is"),
        (
            {"memories": [MEMORY | {"boot": "B"}]},
            {"B": np.ones(3)},
            r"'h' is float64\[\?, 2\] and its boot value float64\[3\]; want one row for all trees",
        ),
        (
            {"memories": [MEMORY | {"boot": "B"}]},
            {"B": np.ones((2, 2))},
            "boot 'B' has a row for each tree, so 'parent' must be given with offsets",
        ),
        (
            {"memories": [MEMORY | {"final": "F"}]},
            {},
            "states of roots are wanted, so 'parent' must be given with offsets",
        ),
        (
            {"ops": [*ADD, ("reduce_sum", {"x": "h"}, {"out": "total"})], "outs": {"T": "total"}},
            {},
            r"'total' \[\] has no row for each node",
        ),
    ],
)
def test_values_that_do_not_fit(changes, values, text):
    with pytest.raises(ShapeError, match=text):
        run_tree(sums(**changes), VALUES | values, ["OUT"] if "outs" not in changes else ["T"])


def test_boot_rows_are_one_for_each_tree():
    desc = sums(memories=[MEMORY | {"boot": "B"}])
    values = VALUES | {"parent": np.array([-1, 0, -1]), "B": np.ones((3, 2))}
    with pytest.raises(ShapeError, match="boot 'B' of 'h' has 3 rows for 2 trees"):
        run_tree(desc, values, ["OUT"], np.array([0, 2, 3]))


def test_in_links_hold_the_same_trees():
    scope = Scope()
    set_all(scope, VALUES, {"parent": [0, 3], "X": [0, 1, 3]})
    with pytest.raises(ShapeError, match="'parent' and 'X' hold trees of different sizes"):
        Net.create(sums()).run(scope, OpContext())


def test_bad_trees_name_operator_net_and_node():
    values = VALUES | {"parent": np.array([1, 0, -1])}
    with pytest.raises(TreeError, match=r"op 0 \(recursive\).*net 'trees': forest: node 0 is its"):
        run_tree(sums(), values, ["OUT"])


def test_trees_may_change_between_runs_of_one_shape():
    scope, net = Scope(), Net.create(sums())
    for parents in ([-1, 0, 0], [-1, 0, 1], [2, 2, -1], [-1, -1, -1]):
        set_all(scope, VALUES | {"parent": np.array(parents)}, {})
        net.run(scope, OpContext(live_out=["OUT"]))
        rows = np.arange(3)
        up = np.array(parents)
        wanted = [sum(1 for below in rows if row in _ancestry(below, up)) for row in rows]
        np.testing.assert_array_equal(scope.numpy("OUT")[:, 0], wanted)


def _ancestry(row, parents):
    found = []
    while row >= 0:
        found.append(row)
        row = parents[row]
    return found


def test_no_nodes_give_no_rows():
    values = {"parent": np.zeros(0, np.int64), "X": np.zeros((0, 2))}
    assert run_tree(sums(), values, ["OUT"])["OUT"].shape == (0, 2)


def test_a_gradient_wants_steps():
    net = PlainNet()
    op = recursive_op(sums())
    del op.outputs["steps"]
    net.add_op(op)
    with pytest.raises(GradientError, match="no variable in the slot 'steps'"):
        net.add_backward_ops(["OUT"], ["X"])


def test_operators_are_added_to_the_node_net_until_gradients_are():
    net = Net.create(sums())
    net.add_op("tanh", {"x": "h"}, {"out": "t"})
    assert [op.type for op in net.desc.steps[0].net.ops] == ["add", "tanh"]
    with pytest.raises(VariableError, match="'trees', in its node net.*'x'"):
        net.add_op("tanh", {"x": "h"}, {"out": "x"})
    net.add_backward_ops(["OUT"], ["X"])
    with pytest.raises(OpscopeError, match="its inner net is closed"):
        net.add_op("tanh", {"x": "h"}, {"out": "t2"})


def test_text_of_a_recursive_net():
    desc = sums(
        pair=PAIR,
        child_links={"h": "child"},
        memories=[MEMORY | {"state": "part"}],
    )
    assert net_text(desc, variables=False) == (
        'net "trees" RECURSIVE version 1\n'
        "step 0\n"
        "  in X -> x\n"
        "  out h -> OUT\n"
        "  child h -> child\n"
        "  parents parent\n"
        "  memory part -> below sum boot=0.0\n"
        '  net "" PLAIN version 1\n'
        "  ops\n"
        "    %0 add(x=x, y=below) -> out=h  #forward\n"
        "child net of step 0\n"
        '  net "" PLAIN version 1\n'
        "  ops\n"
        "    %0 scale(x=child) -> out=part  #forward\n"
    )


def test_errors_of_inner_operators_name_the_net():
    ops = [("embedding", {"ids": "x", "w": "w"}, {"out": "e"})]
    ops.append(("add", {"x": "e", "y": "below"}, {"out": "h"}))
    desc = sums(ops=ops, statics={"W": "w"})
    values = VALUES | {"X": np.array([0, 9, 1]), "W": np.ones((4, 2))}
    with pytest.raises(RunError, match="'trees', in its node net: op 0 .embedding.*holds 9"):
        run_tree(desc, values, ["OUT"])
