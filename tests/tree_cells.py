"""Two cells of recursive nets for tests: descriptions, values, and what they come to."""

from __future__ import annotations

import numpy as np

from tree_nets import tree_desc, walk

D, H = 4, 3


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
