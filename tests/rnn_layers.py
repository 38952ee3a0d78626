"""Recurrent layers for tests: nets with a cost that weighs all results, feeds, gradient checks."""

from __future__ import annotations

import numpy as np

from opscope import NetBuilder
from opscope.framework.base.sequence import Sequences
from opscope.framework.ir.desc import PARAMETER

K, H = 5, 6
LENGTHS = [3, 5, 1, 4]


def packed(rng, lengths, width=K, dtype="float32"):
    return Sequences.from_list([rng.normal(size=(n, width)).astype(dtype) for n in lengths])


def parameters(b):
    return [v.name for v in b.desc.vars if v.kind == PARAMETER]


def flat_states(last):
    return [part for one in last for part in (one if isinstance(one, tuple) else (one,))]


def layer_net(kind, *, boot=True, dtype="float32", width=H, **options):
    """A layer, a cost that weighs every number of its outputs and last states, and all gradients.

    Weights are fed, as `weight_N`; initial states as `boot_N`.
    """
    b = NetBuilder("net", dtype)
    x = b.input("x", [-1, K], levels=1)
    if boot:
        count = options.get("layers", 1) * (2 if options.get("bidirectional") else 1)
        pairs = kind == "lstm"
        states = []
        for n in range(count):
            h = b.input(f"boot_h{n}", [-1, width])
            c = b.input(f"boot_c{n}", [-1, H]) if pairs else None
            states.append((h, c) if pairs else h)
        options["initial"] = states
    out, last = getattr(b, kind)(x, H, name="layer", **options)
    parts = []
    for n, var in enumerate([out, *flat_states(last)]):
        weight = b.input(f"weight_{n}", [-1, var.shape[1]])
        parts.append(b.reduce_sum(var * weight))
    cost = b.sum(parts, name="cost")
    wrt = [*parameters(b), "x", *(v.name for v in b.desc.vars if v.name.startswith("boot_"))]
    b.backward_from(cost, wrt)
    return b, [out, *flat_states(last)], wrt


def feed_for(b, rng, lengths=LENGTHS, dtype="float32"):
    feed = {"x": packed(rng, lengths, dtype=dtype)}
    for var in b.desc.vars:
        if var.name.startswith(("boot_", "weight_")) and "@" not in var.name:
            rows = sum(lengths) if var.name == "weight_0" else len(lengths)
            feed[var.name] = rng.normal(size=(rows, var.dims[1])).astype(dtype)
    return feed


def check_gradients(b, scope, feed, names, cost="cost"):
    """Gradients along random directions against differences, at 1e-6 in float64."""
    rng = np.random.default_rng(11)
    grads = b.run(scope, feed=feed, fetch=[b.gradient(name) for name in names])
    for name in names:
        held = feed.get(name)
        data = held.data if isinstance(held, Sequences) else held
        value = scope.numpy(name) if data is None else data
        direction = rng.normal(size=value.shape)
        costs = []
        for step in (1e-5, -1e-5):
            moved = value + step * direction
            if data is None:
                scope.get(name).set(moved)
                new = feed
            else:
                new = moved if data is held else Sequences(moved, held.levels)
                new = {**feed, name: new}
            costs.append(float(b.run(scope, feed=new, fetch=[cost], need_backward=False)[cost]))
        if data is None:
            scope.get(name).set(value)
        wanted = (costs[0] - costs[1]) / 2e-5
        grad = grads[b.gradient(name)]
        got = float((grad * direction).sum())
        scale = max(abs(wanted), float(np.abs(grad).max(initial=0)), 1e-3)
        assert abs(got - wanted) <= 1e-6 * scale, f"{name}: {got} but {wanted}"
