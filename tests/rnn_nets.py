"""Recurrent nets for tests: small descriptions written out, and helpers that run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.base.sequence import Sequences, offsets_of
from opscope.framework.ir.desc import RECURRENT, make_op, make_var
from opscope.framework.ir.op_list import Link, MemoryDecl, OpList, StepDecl
from opscope.framework.loops.recurrent.net import recurrent_op
from opscope.framework.runtime.net import Net

Op = tuple[str, dict[str, Any], dict[str, Any]] | tuple[str, dict[str, Any], dict[str, Any], dict]


def rnn(
    ops: Sequence[Op],
    *,
    ins: Mapping[str, str] | None = None,
    outs: Mapping[str, str] | None = None,
    statics: Mapping[str, str] | None = None,
    sums: Mapping[str, str] | None = None,
    memories: Sequence[Mapping[str, Any]] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    reverse: bool = False,
    dtype: str = "float64",
    name: str = "rnn",
) -> OpList:
    """A RECURRENT NetDesc; links are outer -> inner names."""
    desc = OpList(name=name, type=RECURRENT)
    step = StepDecl(reverse=reverse)
    desc.steps.append(step)
    for links, given in (
        (step.in_links, ins),
        (step.out_links, outs),
        (step.static_links, statics),
        (step.sum_links, sums),
    ):
        for outer, inner in (given or {}).items():
            links.append(Link(outer, inner))
    for memory in memories:
        step.memories.append(MemoryDecl(**memory))
    for op in ops:
        step.net.ops.append(make_op(*op))
    for var, shape in (shapes or {}).items():
        step.net.vars.append(make_var(var, shape, dtype))
    return desc


def simple(**fields: Any) -> OpList:
    """h = tanh(x u + h_previous w); out-link y = h."""
    memory = {"state": "h", "previous": "p", **fields.pop("memory", {})}
    return rnn(
        [
            ("matmul", {"x": "x", "y": "u"}, {"out": "a"}),
            ("matmul", {"x": "p", "y": "w"}, {"out": "b"}),
            ("add", {"x": "a", "y": "b"}, {"out": "s"}),
            ("tanh", {"x": "s"}, {"out": "h"}),
        ],
        ins={"xs": "x"},
        outs={"ys": "h"},
        statics={"u": "u", "w": "w"},
        memories=[memory],
        shapes={"p": [-1, 3]},
        **fields,
    )


def fill(scope: Scope, values: Mapping[str, Any]) -> None:
    """Feed arrays, and `Sequences` with their offsets."""
    for name, value in values.items():
        if isinstance(value, Sequences):
            scope.var(name).set(value.data, value.levels)
        else:
            scope.var(name).set(value)


def packed(rng: Any, lengths: Sequence[int], *shape: int, dtype: str = "float64") -> Sequences:
    """Random sequences of these lengths."""
    rows = rng.normal(size=(sum(lengths), *shape)).astype(dtype)
    return Sequences(rows, (offsets_of(lengths),))


def run(desc: OpList, values: Mapping[str, Any], fetch: Sequence[str]) -> dict[str, np.ndarray]:
    """Run a net in a fresh scope."""
    scope = Scope()
    fill(scope, values)
    Net.create(desc).run(scope, OpContext(live_out=fetch, seed=1))
    return {name: scope.numpy(name) for name in fetch}


def gradients(
    desc: OpList,
    values: Mapping[str, Any],
    targets: Sequence[str],
    wrt: Sequence[str],
) -> dict[str, np.ndarray]:
    """Gradients of sum(target * weight), with fixed random weights, by the backward pass."""
    net, scope = with_loss(desc, values, targets), Scope()
    fill(scope, values)
    names = net.add_backward_ops("loss", wrt)
    net.run(scope, OpContext(live_out=list(names.values()), seed=1))
    return {name: scope.numpy(grad) for name, grad in names.items()}


def with_loss(desc: OpList, values: Mapping[str, Any], targets: Sequence[str]) -> Any:
    """A PLAIN net: the recurrent operator, then `loss`, a weighted sum of `targets`."""
    outer = OpList(name="outer")
    outer.vars.extend(desc.vars)
    declared = {var.name for var in desc.vars}
    for name in values:
        if name not in declared:
            outer.vars.append(make_var(name, None, None, 1))
    outer.ops.append(recurrent_op(desc))
    parts = []
    for number, name in enumerate(targets):
        # a loss that differs for each element, without knowing the shape
        for op_type, source, made in (
            ("cos", name, f"{name}:cos"),
            ("mul", (f"{name}:cos", name), f"{name}:mul"),
            ("reduce_sum", f"{name}:mul", f"part{number}"),
        ):
            slots = (
                {"x": source} if isinstance(source, str) else dict(zip("xy", source, strict=True))
            )
            outer.ops.append(make_op(op_type, slots, {"out": made}))
        parts.append(f"part{number}")
    outer.ops.append(make_op("sum", {"x": parts}, {"out": "loss"}))
    return Net.create(outer)


def numeric(
    desc: OpList, values: Mapping[str, Any], targets: Sequence[str], name: str, step: float = 1e-6
) -> tuple[np.ndarray, float]:
    """A random direction, and the central difference of the loss along it."""
    net = with_loss(desc, values, targets)
    held = values[name]
    data = held.data if isinstance(held, Sequences) else held
    direction = np.random.default_rng(5).normal(size=data.shape)
    losses = []
    for sign in (1, -1):
        moved = data + sign * step * direction
        scope = Scope()
        fill(scope, values)
        new = Sequences(moved, held.levels) if isinstance(held, Sequences) else moved
        fill(scope, {name: new})
        net.run(scope, OpContext(live_out=["loss"], seed=1))
        losses.append(float(scope.numpy("loss")))
    return direction, (losses[0] - losses[1]) / (2 * step)


def check_gradients(
    desc: OpList, values: Mapping[str, Any], targets: Sequence[str], wrt: Sequence[str]
) -> None:
    """Gradients along random directions against differences, at 1e-6 relative."""
    found = gradients(desc, values, targets, wrt)
    assert sorted(found) == sorted(wrt)
    for name in wrt:
        direction, wanted = numeric(desc, values, targets, name)
        got = float((found[name] * direction).sum())
        scale = max(abs(wanted), float(np.abs(found[name]).max(initial=0)), 1e-3)
        assert abs(got - wanted) <= 1e-6 * scale, f"{name}: {got} but {wanted}"
