"""`recursive`: a node net over the nodes of trees, and its gradient.

framework/loops/trees/net.py runs it; this module holds its schema, shape rule and binding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.sizes.shape import Levels, ShapeArgs
from ...framework.ir.kernel_args import KernelArgs
from ...framework.ir.registry import EVERYWHERE, AttrSpec, Slot, operator
from ...framework.loops.trees import net as recursive_net  # noqa: F401  registers the net
from ...framework.loops.trees.description import TreeNet, tree_net
from ...framework.loops.trees.grad import TreeGradientProgram, make_gradient
from ...framework.loops.trees.run import TreeForwardProgram
from .nets import LINK_GRADS, check_links, link_grad_shapes

_PARENT = Slot(
    "parent",
    "[nodes] integers: each node's parent, -1 for a root. With offsets each sequence is one tree,"
    " and parents are counted from its first row; without, all rows are one forest",
)
_POSITION = Slot("position", "[nodes] integers: which child of its parent a node is", optional=True)

recursive = operator(
    "recursive",
    doc=(
        "A node net run once for each node of a forest, children before parents; all nodes of one"
        " height run side by side. `net` is a RECURSIVE NetDesc: its links and memories say, in"
        " this order, which inner variable each variable of a slot stands for. With arity k a node"
        " reads the states of children 0 to k-1, or boot values where it has fewer; with arity 0 it"
        " reads sums over any number of children, of their states or of the results of a child net"
        " for each child and its parent, and a leaf reads boot values."
    ),
    inputs=[
        _PARENT,
        _POSITION,
        Slot(
            "x",
            "in-links: one row for each node, [nodes, ...]",
            duplicable=True,
            optional=True,
            not_in_gradient=True,
        ),
        Slot("static", "static links: the same at each node", duplicable=True, optional=True),
        Slot(
            "boot",
            "states of missing children, of the memories that name one: a row for all trees,"
            " [...], or one for each, [trees, ...]",
            duplicable=True,
            optional=True,
            not_in_gradient=True,
        ),
    ],
    outputs=[
        Slot(
            "out", "out-links, [nodes, ...]", duplicable=True, optional=True, not_in_gradient=True
        ),
        Slot(
            "final",
            "states of the roots, of the memories that name one, [trees, ...]",
            duplicable=True,
            optional=True,
            not_in_gradient=True,
        ),
        Slot(
            "steps", "values of each node that the gradient reads", optional=True, intermediate=True
        ),
    ],
    attrs=[AttrSpec("net", "net", "the RECURSIVE net")],
    beside=("final",),
    source=(
        "C. Goller and A. Kuechler, Learning task-dependent distributed representations by"
        " backpropagation through structure"
    ),
    takes_halves=EVERYWHERE,
)


def _tree_of(s: ShapeArgs) -> TreeNet:
    """The parsed net, checked to have as many links as the slots have variables."""
    tree = tree_net(s.attrs["net"])
    check_links(
        s,
        tree.title,
        x=len(tree.inputs),
        static=len(tree.statics),
        boot=tree.boots,
        out=len(tree.outputs),
        final=tree.finals,
        position=int(tree.positioned),
    )
    return tree


@recursive.shape_rule
def recursive_shape(s: ShapeArgs) -> None:
    tree = _tree_of(s)
    s.integers("parent")
    (nodes,) = s.rank("parent", 1)
    levels = s.offsets("parent")
    parent = s.op.inputs["parent"][0]
    if s.has("position"):
        s.integers("position")
        s.rank("position", 1)
    _check_rows(s, tree, nodes, levels)
    trees = len(levels[0]) - 1 if levels else -1
    specs = tree.infer(s.specs("x"), s.specs("static"), s.specs("boot"))
    for name, spec, (memory, shared) in zip(
        s.op.inputs.get("boot", ()),
        s.specs("boot"),
        ((m, b) for m, b in zip(tree.memories, specs.shared_boot, strict=True) if m.boot >= 0),
        strict=True,
    ):
        if not shared and levels == ():
            s.fail(
                f"{tree.title}: boot {name!r} has a row for each tree, so {parent!r} must be given"
                " with offsets"
            )
        if not shared and trees >= 0 and spec[0][0] not in (trees, -1):
            s.fail(
                f"{tree.title}: boot {name!r} of {memory.state!r} has {spec[0][0]} rows for"
                f" {trees} trees"
            )
    if tree.finals and levels == ():
        s.fail(
            f"{tree.title}: states of roots are wanted, so {parent!r} must be given with offsets,"
            " one sequence for each tree"
        )
    outs = (specs.node[name] for name in tree.outputs)
    s.set("out", *(((nodes, *shape[1:]), dtype) for shape, dtype in outs))
    s.set_offsets("out", levels)
    # In the order of the slot, which may differ from the order of the memories.
    held = sorted((memory.final, memory.state) for memory in tree.memories if memory.final >= 0)
    finals = (specs.node[state] for _, state in held)
    s.set("final", *(((trees, *shape[1:]), dtype) for shape, dtype in finals))
    s.set_offsets("final", ())
    # The number of the run whose values the scope holds: the gradient refuses any other.
    s.set("steps", ((1,), np.int64))
    s.set_offsets("steps", ())


def _check_rows(s: ShapeArgs, tree: TreeNet, nodes: int, levels: Levels | None) -> None:
    """Links hold one row for each node, and sequences only where these are the trees."""
    parent = s.op.inputs["parent"][0]
    if levels is not None and len(levels) > 1:
        s.fail(f"{tree.title}: {parent!r} has {len(levels)} levels of sequences, want one: trees")
    for slot in ("x", "position"):
        for name in s.op.inputs.get(slot, ()):
            shape = s.input_spec(name)[0]
            if not shape:
                s.fail(f"{tree.title}: {name!r} is a scalar, want a row for each node")
            s.same(f"{tree.title}: the rows of {parent!r} and {name!r}", nodes, shape[0])
            own = s.input_offsets(name)
            # Plain rows fit any forest; only sequences of their own have to be its trees.
            if own and (not levels or not np.array_equal(own[-1], levels[0])):
                s.fail(f"{tree.title}: {parent!r} and {name!r} hold trees of different sizes")


@recursive.kernel
def recursive_kernel(k: KernelArgs) -> Any:
    return TreeForwardProgram(k)


recursive.gradient_maker(make_gradient)

recursive_grad = operator(
    "recursive_grad",
    doc=(
        "Gradient of `recursive`: gradient operators of the node net (and of the child net), run in"
        " the step scopes of the forward run from the roots down to the leaves."
    ),
    inputs=[
        Slot(_PARENT.name, _PARENT.doc, shape_only=True),
        Slot(_POSITION.name, _POSITION.doc, optional=True, shape_only=True),
        Slot("x", "in-links of the forward run", duplicable=True, optional=True, shape_only=True),
        Slot("static", "its static links", duplicable=True, optional=True),
        Slot("boot", "its boot values", duplicable=True, optional=True, shape_only=True),
        Slot("steps", "the node values that it saved"),
        Slot("out_grad", "gradients of those out-links that `outs` tells", True, optional=True),
        Slot("final_grad", "gradients of those roots that `finals` tells", True, optional=True),
    ],
    outputs=LINK_GRADS,
    attrs=[
        AttrSpec("net", "net", "the RECURSIVE net, gradient operators after the forward ones"),
        AttrSpec("outs", "bools", "for each out-link, whether a gradient arrives", ()),
        AttrSpec("finals", "bools", "for each state of roots, whether a gradient arrives", ()),
    ],
    no_gradient="the gradient of a gradient is not built",
    takes_halves=EVERYWHERE,
)


recursive_grad.shape_rule(link_grad_shapes)


@recursive_grad.kernel
def recursive_grad_kernel(k: KernelArgs) -> Any:
    return TreeGradientProgram(k)
