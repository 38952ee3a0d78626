"""Recursive nets for tests: written out, a plain recursive reference, and random forests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.base.sequence import offsets_of
from opscope.framework.ir.desc import RECURSIVE, make_op, make_var
from opscope.framework.ir.op_list import Link, MemoryDecl, OpList, StepDecl
from opscope.framework.runtime.net import Net

Op = Sequence[Any]
"""(type, inputs, outputs) or (type, inputs, outputs, attributes)"""


def tree_desc(
    ops: Sequence[Op],
    *,
    ins: Mapping[str, str] | None = None,
    outs: Mapping[str, str] | None = None,
    statics: Mapping[str, str] | None = None,
    memories: Sequence[Mapping[str, Any]] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    arity: int = 0,
    positions: str = "",
    pair: Sequence[Op] | None = None,
    child_links: Mapping[str, str] | None = None,
    parents: str = "parent",
    dtype: str = "float64",
    name: str = "trees",
) -> OpList:
    """A RECURSIVE NetDesc; links are outer -> inner names, `shapes` those of variables inside."""
    desc = OpList(name=name, type=RECURSIVE)
    step = StepDecl(arity=arity, positions=positions, parents=parents)
    desc.steps.append(step)
    for links, given in (
        (step.in_links, ins),
        (step.out_links, outs),
        (step.static_links, statics),
        (step.child_links, child_links),
    ):
        for outer, inner in (given or {}).items():
            links.append(Link(outer, inner))
    for memory in memories:
        step.memories.append(MemoryDecl(**memory))
    step.net.ops += [make_op(*op) for op in ops]
    if pair is not None:
        step.child_net = OpList(ops=[make_op(*op) for op in pair])
    step.net.vars.extend(make_var(name, shape, dtype) for name, shape in (shapes or {}).items())
    return desc


def random_trees(
    rng: np.random.Generator, sizes: Sequence[int], *, arity: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Parents and offsets of random trees whose rows stand in a random order."""
    packed = []
    for size in sizes:
        parents, free = np.full(size, -1), []
        for row in range(1, size):
            choices = [r for r in range(row) if not arity or np.sum(parents[:row] == r) < arity]
            parents[row] = rng.choice(choices)
        free = rng.permutation(size)
        mixed = np.full(size, -1)
        mixed[free] = np.where(parents < 0, -1, free[parents])
        packed.append(mixed)
    return np.concatenate(packed), offsets_of(sizes)


def walk(
    parents: np.ndarray,
    offsets: np.ndarray | None,
    node: Callable[[int, list[tuple[int, Any]]], Any],
) -> list[Any]:
    """Runs `node(row, [(child's row, child's result), ...])` recursively; results by row."""
    results: list[Any] = [None] * len(parents)
    bounds = [0, len(parents)] if offsets is None else offsets
    for first, end in zip(bounds[:-1], bounds[1:], strict=True):
        own = parents[first:end]

        def visit(local: int, own: np.ndarray = own, first: int = first) -> Any:
            children = [int(c) for c in np.flatnonzero(own == local)]
            below = [(first + c, visit(c)) for c in children]
            results[first + local] = node(int(first + local), below)
            return results[first + local]

        for root in np.flatnonzero(own == -1):
            visit(int(root))
    return results


def set_all(scope: Scope, values: Mapping[str, Any], offsets: Mapping[str, Any]) -> None:
    for name, value in values.items():
        levels = (offsets[name],) if name in offsets else ()
        (scope.find(name) or scope.var(name)).set(value, levels)


def run_tree(
    desc: OpList,
    values: Mapping[str, Any],
    fetch: Sequence[str],
    offsets: np.ndarray | None = None,
    scope: Scope | None = None,
) -> dict[str, np.ndarray]:
    """Runs a recursive net by itself."""
    scope = scope or Scope()
    set_all(scope, values, {} if offsets is None else {desc.steps[0].parents: offsets})
    Net.create(desc).run(scope, OpContext(live_out=fetch, seed=1))
    return {name: scope.numpy(name) for name in fetch}


def check_gradients(
    desc: OpList,
    values: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    wrt: Sequence[str],
    offsets: np.ndarray | None = None,
    tolerance: float = 1e-6,
) -> dict[str, np.ndarray]:
    """Compares gradients of sum(weights * outputs) with finite differences along directions."""
    net, scope = Net.create(desc), Scope()
    parents = {} if offsets is None else {desc.steps[0].parents: offsets}
    given = {name: f"{name}_arriving" for name in weights}
    grads = net.add_backward_ops(given, wrt)
    assert set(grads) == set(wrt)
    seeds = {given[name]: value for name, value in weights.items()}
    set_all(scope, {**values, **seeds}, parents)
    net.run(scope, OpContext(live_out=[*grads.values(), *weights]))
    found = {name: scope.numpy(grad) for name, grad in grads.items()}

    forward, other = Net.create(desc), Scope()

    def loss(changed: Mapping[str, Any]) -> float:
        set_all(other, {**values, **changed}, parents)
        forward.run(other, OpContext(live_out=list(weights)))
        return sum(float((other.numpy(name) * w).sum()) for name, w in weights.items())

    rng = np.random.default_rng(5)
    step = 1e-6
    for name in wrt:
        for _ in range(2):
            direction = rng.normal(size=np.shape(values[name]))
            ahead = loss({name: values[name] + step * direction})
            back = loss({name: values[name] - step * direction})
            loss({name: values[name]})
            wanted = (ahead - back) / (2 * step)
            got = float((found[name] * direction).sum())
            assert abs(got - wanted) <= tolerance * max(1.0, abs(wanted)), (name, got, wanted)
    return found
