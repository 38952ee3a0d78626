"""Rewriting of nets: a pattern matches an operator, others take its place, and readers follow.

    def without_copies(op: Operator, walk: Rewriter) -> list[OpNode] | None:
        if op.type != "assign":
            return None
        walk.rename(op.outputs["out"][0], op.inputs["x"][0])
        return []

    net = rewrite(net, without_copies)

A walk visits each operator once, in the order in which they run and as what came before has left
it: chains are followed, and a walk costs what the list costs.

Source: xDSL, `xdsl/pattern_rewriter.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from ..ir.desc import TEMPORARY
from ..ir.op_list import OpList, OpNode, VarDecl
from ..ir.operation import Operator


class Rewriter:
    """A walk over a list of operators.

    Attributes:
        uses: how often operators read each variable; rewritten ones count as they are now.
    """

    def __init__(self, ops: Sequence[OpNode]) -> None:
        self.uses = Counter(name for op in ops for name in op.input_names())
        self._ops = ops
        self._left: dict[int, OpNode] = {}  # by number, in the order in which they were put
        self._writers: dict[str, int] = {}  # variable -> the number of its last writer
        self._renames: dict[str, str] = {}
        self._put = 0

    def walk(self, *patterns: Pattern) -> list[OpNode]:
        """The operators after the first pattern that matches each of them.

        Raises:
            OpscopeError: an operator is wrongly used.
        """
        for index, node in enumerate(self._ops):
            # As earlier patterns have left it: a chain falls together in a single walk.
            op = Operator(node.renamed(self._renames), index)
            replacement = next((m for m in (p(op, self) for p in patterns) if m is not None), None)
            if replacement is not None:
                self.uses.subtract(op.node.input_names())
                self.uses.update(name for one in replacement for name in one.input_names())
            for one in (op.node,) if replacement is None else replacement:
                self._left[self._put] = one
                self._writers.update(dict.fromkeys(one.output_names(), self._put))
                self._put += 1
        return list(self._left.values())

    def version(self, name: str) -> int:
        """A number that changes when a variable is written; -1: nothing has written it so far."""
        return self._writers.get(name, -1)

    def writer(self, name: str) -> OpNode | None:
        """The operator that has written a variable last; None: none so far, or it is erased."""
        return self._left.get(self.version(name))

    def rename(self, old: str, new: str) -> None:
        """Let operators that follow read `new` in place of `old`, which nothing writes again."""
        self._renames[old] = new
        self.uses[new] += self.uses.pop(old, 0)

    def erase(self, name: str) -> None:
        """Erase the operator that has written a variable last."""
        self.uses.subtract(self._left.pop(self._writers[name]).input_names())


Pattern: TypeAlias = Callable[[Operator, Rewriter], Sequence[OpNode] | None]
"""What takes an operator's place, nothing where it is erased; None where it does not match."""


def rewrite(net: OpList, *patterns: Pattern) -> OpList:
    """The net after a walk; `net` itself stays as it is.

    Raises:
        OpscopeError: an operator is wrongly used.
    """
    return with_ops(net, Rewriter(net.ops).walk(*patterns))


def with_ops(net: OpList, ops: list[OpNode]) -> OpList:
    """The net with other operators: temporaries that nothing mentions any more are gone, new
    variables are declared."""
    out = net.copy()
    out.ops = ops
    # By identity of the nodes: nothing has matched, so no declaration can be unused now.
    if ops == net.ops:
        return out
    used = {name for op in ops for name in (*op.input_names(), *op.output_names())}
    used |= {var.view.base for var in net.vars if var.view is not None and var.name in used}
    used |= set(outside_names(out))
    out.vars = [var for var in net.vars if var.kind != TEMPORARY or var.name in used]
    known = {var.name for var in net.vars} | {n for op in net.ops for n in op.output_names()}
    written = dict.fromkeys(name for op in ops for name in op.output_names() if name not in known)
    out.vars += [VarDecl(name, kind=TEMPORARY) for name in written]
    return out


def outside_names(net: OpList) -> Iterator[str]:
    """Names that links and nested nets use: these must stay."""
    for step in net.steps:
        for link in (*step.in_links, *step.static_links, *step.out_links):
            yield link.outer
        for memory in step.memories:
            if memory.boot:
                yield memory.boot
        yield from (name for name in (step.parents, step.positions) if name)
        yield from _mentioned(step.net)
        if step.child_net is not None:
            yield from _mentioned(step.child_net)
    for op in net.ops:
        for _, inner in op.inner_nets():
            yield from _mentioned(inner)


def _mentioned(net: OpList) -> Iterator[str]:
    for op in net.ops:
        yield from op.input_names()
        yield from op.output_names()
    yield from outside_names(net)
