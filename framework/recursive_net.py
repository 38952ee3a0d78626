"""RecursiveNet: a node net run once for each node of a forest, children before parents.

Semantics. Trees are given as an integer variable with the row of each node's parent (forest.py),
in-links and out-links hold one row for each node, in any order of the nodes. What a node reads of
its children, the `previous` of a memory, is

- with arity k: the `state` of child number `child`; children are numbered in the order of their
  rows, or as the variable `positions` tells. Where there is no such child, the boot value.
- with arity 0: the sum of `state` over any number of children, for a leaf the boot value. A state
  that `child_net` writes stands for each pair of a child and its parent: that net reads the child's
  values (child links) beside the in-links of the parent, so that each child may be weighed, as by
  the forget gates of a child-sum tree-LSTM.

Nets must treat rows by themselves (no batch normalisation, say): nodes of one height run as a few
batches of rows. The gradient is the same nets with gradient operators behind, run from the roots
down (recursive_grad.py). A forward run keeps what its gradient reads and nothing where there is
none; step scopes are bound once for a number of rows and used again by the trees that follow.

Sources: C. Goller and A. Kuechler, Learning task-dependent distributed representations by
backpropagation through structure; K. S. Tai, R. Socher and C. D. Manning, Improved semantic
representations from tree-structured long short-term memory networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..proto import net_pb2 as pb
from .context import OpContext
from .desc import INPUT, RECURSIVE, SlotMap, clone, input_names, make_op, output_names
from .errors import OpscopeError
from .names import EMPTY, steps_name
from .net import Net, register_net
from .operation import Operator
from .plain_net import PlainNet
from .recursive_step import tree_net
from .scope import Scope

RECURSIVE_OP = "recursive"


def recursive_op(desc: pb.NetDesc, steps: str = "") -> pb.OpDesc:
    """The operator `recursive` that runs `desc` over the outer names of its links.

    Variables that the nets read and nobody links or writes become static links to the variables of
    the same names outside.

    Args:
        steps: variable for what the gradient needs; by default named after the net.

    Raises:
        OpscopeError: what the description holds is wrong.
    """
    desc = clone(desc)
    if desc.type == RECURSIVE and len(desc.steps) == 1:
        _link_free_names(desc.steps[0])
    tree_net(desc)  # refuses what is wrong with it
    step = desc.steps[0]
    inputs = {
        "parent": step.parents,
        "position": [step.positions] if step.positions else [],
        "x": [link.outer for link in step.in_links],
        "static": [link.outer for link in step.static_links],
        "boot": [memory.boot for memory in step.memories if memory.boot],
    }
    outputs = {
        "out": [link.outer for link in step.out_links],
        "final": [memory.final for memory in step.memories if memory.final],
        "steps": steps or steps_name(desc.name or "recursive"),
    }
    held = pb.NetDesc(type=RECURSIVE, name=desc.name)
    held.steps.add().CopyFrom(step)
    return make_op(RECURSIVE_OP, inputs, outputs, {"net": held})


def _link_free_names(step: pb.StepDesc) -> None:
    linked = [link.inner for link in (*step.in_links, *step.static_links)]
    for net, own in (
        (step.net, [memory.previous for memory in step.memories]),
        (step.child_net, [link.inner for link in step.child_links]),
    ):
        known = {*linked, *own, EMPTY}
        for op in net.ops:
            for name in input_names(op):
                if name not in known:
                    step.static_links.add(outer=name, inner=name)
                    linked.append(name)
                    known.add(name)
            known.update(output_names(op))


@register_net(RECURSIVE)
class RecursiveNet(Net):
    """A recursive net as a net of its own: one operator `recursive` over the outer names.

    Args:
        desc: of type RECURSIVE; `vars` declares outer variables.

    Raises:
        OpscopeError: what the description holds is wrong.
    """

    def __init__(self, desc: pb.NetDesc) -> None:
        self.desc = clone(desc)
        self._rebuild()

    def _rebuild(self) -> None:
        op = recursive_op(self.desc)
        outer = pb.NetDesc(name=self.desc.name)
        outer.vars.extend(self.desc.vars)
        outer.ops.append(op)
        declared = {var.name for var in outer.vars}
        for name in dict.fromkeys(input_names(op)):
            if name not in declared:
                outer.vars.add(name=name, kind=INPUT)
        self.plain = PlainNet(outer)

    @property
    def operators(self) -> list[Operator]:
        """The outer operators: `recursive`, then those of gradients and updates."""
        return self.plain.operators

    def run(
        self,
        scope: Scope | None = None,
        context: OpContext | None = None,
        begin: int = -1,
        end: int = -1,
    ) -> None:
        """See `Net.run`; `begin` and `end` count the outer operators."""
        self.plain.run(scope, context, begin, end)

    def add_op(
        self,
        desc: pb.OpDesc | str,
        inputs: SlotMap | None = None,
        outputs: SlotMap | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> int:
        """Append an operator to the node net; see `PlainNet.add_op`.

        Raises:
            OpscopeError: it is wrong, or gradients have been added; the net stays as it was.
        """
        if len(self.plain.operators) > 1:
            raise OpscopeError(
                f"recursive net {self.desc.name!r}: gradients have been added; its node net is"
                " closed"
            )
        if isinstance(desc, str):
            desc = make_op(desc, inputs or {}, outputs or {}, attrs)
        Operator(desc)
        before = clone(self.desc)
        ops = self.desc.steps[0].net.ops
        ops.append(desc)
        try:
            self._rebuild()
        except OpscopeError:
            self.desc = before
            raise
        return len(ops) - 1

    def add_backward_ops(
        self,
        targets: str | Sequence[str] | Mapping[str, str] | None = None,
        wrt: Sequence[str] | None = None,
        stop: Sequence[str] = (),
    ) -> dict[str, str]:
        """Append the gradient; see `PlainNet.add_backward_ops`."""
        return self.plain.add_backward_ops(targets, wrt, stop)

    def add_optimizer_ops(self, attrs: Any) -> list[str]:
        """Append updates of parameters; see `PlainNet.add_optimizer_ops`."""
        return self.plain.add_optimizer_ops(attrs)

    def infer_shape(self, scope: Scope) -> None:
        """See `Net.infer_shape`."""
        self.plain.infer_shape(scope)

    def __repr__(self) -> str:
        return f"<RecursiveNet {self.desc.name or '?'}: {len(self.plain.operators)} operators>"
