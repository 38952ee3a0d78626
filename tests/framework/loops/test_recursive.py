"""Recursive nets against a plain recursion in NumPy, gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.scope import Scope
from opscope.framework.ir.registry import load_operators
from tree_cells import (
    H,
    binary_desc,
    binary_reference,
    binary_values,
    weighed_desc,
    weighed_reference,
    weighed_values,
)
from tree_nets import check_gradients, random_trees, run_tree, tree_desc, walk


@pytest.fixture(autouse=True, scope="module")
def real_operators(toys: None) -> None:
    load_operators()


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
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-14)
    weights = {"OUT": rng.normal(size=(7, H))}
    check_gradients(desc, given, weights, ["X", "U", "V", "B0", "B1"], offsets)


@pytest.mark.parametrize("switch", ["OPSCOPE_FUSE", "OPSCOPE_REUSE", "OPSCOPE_INPLACE"])
def test_switches_change_nothing(case, switch, monkeypatch):
    desc, values, reference, arity = case
    rng = np.random.default_rng(3)
    parents, offsets = random_trees(rng, [9, 4], arity=arity)
    given = values(rng, parents, 2)
    monkeypatch.setenv(switch, "0")
    weights = {"OUT": rng.normal(size=(13, H))}
    check_gradients(desc(), given, weights, ["X", "U"], offsets)
