"""Nets whose pages are tested."""

from __future__ import annotations

import numpy as np

from opscope import NetBuilder
from opscope.framework.ir.desc import make_op, make_var
from opscope.framework.ir.op_list import OpList

NASTY = (
    '</script><img src=x onerror="window.hacked=1">',
    "<!--<script>window.hacked=1</script>",
    "\"'><svg onload=window.hacked=1>",
    "]]>&lt;b&gt;\u2028\u2029",
    "${window.hacked=1}`\\u003cscript",
    "@@DATA@@",
)
"""Texts that would do something on a page that does not escape them."""


def nasty() -> OpList:
    """A net whose names, types, attributes and metadata are such texts."""
    net = OpList("net" + NASTY[0])
    net.metadata = {text: text for text in NASTY}
    net.vars = [make_var(text, (2,), "float32", 1) for text in NASTY]
    for number, text in enumerate(NASTY):
        net.ops.append(make_op(text, {text: text}, {text: f"{text}/{number}"}, {text: text}))
    return net


def pair() -> tuple[NetBuilder, NetBuilder]:
    """A net, and another made from it: an activation replaced, an operator for another one."""
    nets = []
    for is_new in (False, True):
        b = NetBuilder("new" if is_new else "old")
        x = b.input("x", [-1, 4])
        h = b.tanh(x, name="h") if is_new else b.relu(x, name="h")
        g = b.exp(h, name="extra") if is_new else b.sigmoid(h, name="gone")
        b.softmax(g, name="y")
        nets.append(b)
    return nets[0], nets[1]


def deep(count: int) -> tuple[OpList, dict[str, np.ndarray]]:
    """A net of about `count` operators in residual layers, and its parameters."""
    b = NetBuilder("deep")
    x = b.input("x", [-1, 16])
    for _ in range(count // 4):
        x = x + b.fc(b.fc(x, size=16, activation="relu"), size=16)
    rng = np.random.default_rng(1)
    net = b.op_list
    arrays = {v.name: rng.standard_normal(v.shape).astype("f") for v in net.vars if v.kind == 2}
    return net, arrays
