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

Nets must treat rows by themselves (no batch normalization, say): nodes of one height run as a few
batches of rows. The gradient is the same nets with gradient operators added, run from the roots
down (grad.py). A forward run saves the variables that its gradient reads, and nothing where there
is none. Step scopes are bound once for a number of rows and used again by the trees that follow.

Sources: C. Goller and A. Kuechler, Learning task-dependent distributed representations by
backpropagation through structure; K. S. Tai, R. Socher and C. D. Manning, Improved semantic
representations from tree-structured long short-term memory networks.
"""

from __future__ import annotations

from ....proto import net_pb2 as pb
from ...ir.desc import RECURSIVE, make_op
from ...ir.messages import as_op_list
from ...ir.names import steps_name
from ...ir.op_list import Link, OpList, OpNode, StepDecl
from ...runtime.net import register_net
from ..inner_net import InnerNet
from .description import tree_net

RECURSIVE_OP = "recursive"


def recursive_op(desc: OpList | pb.NetDesc, steps: str = "") -> OpNode:
    """The operator `recursive` that runs `desc` over the outer names of its links.

    Variables that the nets read and nothing links or writes become static links to the variables of
    the same names outside.

    Args:
        steps: variable for what the gradient needs; by default named after the net.

    Raises:
        OpscopeError: what the description holds is wrong.
    """
    net = as_op_list(desc).copy()
    if net.type == RECURSIVE and len(net.steps) == 1:
        _link_free_names(net.steps[0])
    inner = OpList(net.name, net.type, steps=net.steps)
    tree_net(inner)  # refuses what is wrong with it
    step = inner.steps[0]
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
        "steps": steps or steps_name(net.name or "recursive"),
    }
    return make_op(RECURSIVE_OP, inputs, outputs, {"net": inner})


def _link_free_names(step: StepDecl) -> None:
    linked = [link.inner for link in (*step.in_links, *step.static_links)]
    for net, own in (
        (step.net, [memory.previous for memory in step.memories]),
        (step.child_net, [link.inner for link in step.child_links]),
    ):
        known = {*linked, *own}
        for op in [] if net is None else net.ops:
            for name in op.input_names():
                if name not in known:
                    step.static_links.append(Link(name, name))
                    linked.append(name)
                    known.add(name)
            known.update(op.output_names())


@register_net(RECURSIVE)
class RecursiveNet(InnerNet):
    """A recursive net as a net of its own: one operator `recursive` over the outer names."""

    @staticmethod
    def make_op(desc: OpList, steps: str = "") -> OpNode:
        """See `recursive_op`."""
        return recursive_op(desc, steps)
