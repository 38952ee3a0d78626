"""The tree-LSTM: a recursive net over the nodes of trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...framework.base.errors import AttributeTypeError
from ...framework.ir.desc import INPUT, RECURSIVE, make_op, make_var
from ...framework.ir.op_list import Link, MemoryDecl, OpList, StepDecl
from .methods import builder_method
from .net_builder import NetBuilder
from .var import Var


@builder_method
def tree_lstm(
    builder: NetBuilder,
    x: Var | str,
    parents: Var | str,
    size: int,
    *,
    arity: int = 0,
    positions: Var | str | None = None,
    init: Any = "xavier",
    forget_bias: float = 1.0,
    lr_factor: float | None = None,
    trainable: bool = True,
    name: str = "",
) -> tuple[Var, Var]:
    """Tree-LSTM over the nodes of trees, from the leaves up.

    With arity 0 the child-sum cell, for any number of children in any order: of h~, the sum of
    the children's states h_k,

        i, o, u = sigmoid, sigmoid, tanh (x W + h~ U + b)
        f_k = sigmoid(x W_f + h_k U_f + b_f)
        c = i u + sum_k f_k c_k,    h = o tanh(c)

    With arity N the N-ary cell: h~ stands for all of h_1 ... h_N side by side, and f_k reads
    all of them with weights of its own. States of missing children are zeros.

    Args:
        x: [nodes, K], one row for each node.
        parents: [nodes] integers, one sequence for each tree: the parent of each node, counted
            from the tree's first row, -1 for the root. See `framework.forest.Trees`.
        size: width H of the states.
        arity: most children of a node; 0 = any number.
        positions: [nodes] integers, with arity: which child of its parent a node is; by
            default children are numbered in the order of their rows.
        init: of the weights; see `initializers.initializer`.
        forget_bias: first value of b_f.
        lr_factor: multiplies the learning rate of the parameters.
        trainable: False keeps them as they are; gradients still flow to x.

    Returns:
        h of all nodes, [nodes, H], and of the roots, [trees, H].

    Source: K. S. Tai, R. Socher and C. D. Manning, Improved semantic representations from
    tree-structured long short-term memory networks.
    """
    if size < 1 or arity < 0:
        raise AttributeTypeError(f"tree_lstm: want size >= 1, arity >= 0, not {size}, {arity}")
    name = builder.layer_name(name, "tree_lstm")
    learned = {"lr_factor": lr_factor, "trainable": trainable}
    shared = {"init": init, **learned}
    # All that depends on x alone is one product over all nodes, outside the recursion.
    gates = builder.fc(x, size=3 * size, name=f"{name}.iou", **shared)
    forget = builder.fc(x, size=size, bias_init=forget_bias, name=f"{name}.f", **shared)
    cell = _nary_cell if arity else _child_sum_cell
    desc, widths = cell(size, arity)
    desc.name = name
    step = desc.steps[0]
    step.parents = str(parents)
    if positions is not None:
        step.positions = str(positions)
    step.in_links.append(Link(str(gates), "x_iou"))
    step.in_links.append(Link(str(forget), "x_f"))
    for inner, shape in widths.items():
        weight = builder.parameter(f"{name}.{inner}", shape, init, **learned)
        step.static_links.append(Link(str(weight), inner))
    step.out_links.append(Link(name, "h"))
    step.memories[0].final = f"{name}.root"
    for net in (step.net, step.child_net or OpList()):
        net.vars = [var.changed(dtype=builder.dtype) for var in net.vars]
    states, roots = builder.recursive_net(desc)
    return states, roots


_GATES = [
    ("sigmoid", {"x": "i_in"}, {"out": "i"}),
    ("sigmoid", {"x": "o_in"}, {"out": "o"}),
    ("tanh", {"x": "u_in"}, {"out": "u"}),
    ("mul", {"x": "i", "y": "u"}, {"out": "new"}),
    ("add", {"x": "new", "y": "kept"}, {"out": "c"}),
    ("tanh", {"x": "c"}, {"out": "c_tanh"}),
    ("mul", {"x": "o", "y": "c_tanh"}, {"out": "h"}),
]


def _child_sum_cell(size: int, arity: int) -> tuple[OpList, dict[str, list[int]]]:
    """The child-sum cell, and the shapes of its weights."""
    step = StepDecl()
    desc = OpList(type=RECURSIVE, steps=[step])
    parts = {"out": ["i_in", "o_in", "u_in"]}
    _extend(
        step.net,
        [
            ("matmul", {"x": "h_sum", "y": "u_iou"}, {"out": "hu"}),
            ("add", {"x": "hu", "y": "x_iou"}, {"out": "iou"}),
            ("split", {"x": "iou"}, parts, {"axis": 1, "sections": [size] * 3}),
            *_GATES,
        ],
    )
    step.child_net = OpList()
    _extend(
        step.child_net,
        [
            ("matmul", {"x": "h_child", "y": "u_f"}, {"out": "hf"}),
            ("add", {"x": "hf", "y": "x_f"}, {"out": "f_in"}),
            ("sigmoid", {"x": "f_in"}, {"out": "f"}),
            ("mul", {"x": "f", "y": "c_child"}, {"out": "kept_part"}),
        ],
    )
    step.child_links.append(Link("h", "h_child"))
    step.child_links.append(Link("c", "c_child"))
    step.memories.append(MemoryDecl("h", "h_sum"))
    step.memories.append(MemoryDecl("kept_part", "kept"))
    _declare(step.net, ["h_sum", "kept"], size)
    return desc, {"u_iou": [size, 3 * size], "u_f": [size, size]}


def _nary_cell(size: int, arity: int) -> tuple[OpList, dict[str, list[int]]]:
    """The N-ary cell: one product gives all gates from the states of all children."""
    step = StepDecl(arity=arity)
    desc = OpList(type=RECURSIVE, steps=[step])
    children = range(arity)
    forget = [f"hf_{k}" for k in children]
    parts = {"out": ["h_iou", *forget]}
    sections = [3 * size] + [size] * arity
    ops: list[tuple[Any, ...]] = [
        ("concat", {"x": [f"h_{k}" for k in children]}, {"out": "h_all"}, {"axis": 1}),
        ("matmul", {"x": "h_all", "y": "u_all"}, {"out": "hu"}),
        ("split", {"x": "hu"}, parts, {"axis": 1, "sections": sections}),
        ("add", {"x": "h_iou", "y": "x_iou"}, {"out": "iou"}),
        (
            "split",
            {"x": "iou"},
            {"out": ["i_in", "o_in", "u_in"]},
            {"axis": 1, "sections": [size] * 3},
        ),
    ]
    for k in children:
        ops += [
            ("add", {"x": f"hf_{k}", "y": "x_f"}, {"out": f"f_in_{k}"}),
            ("sigmoid", {"x": f"f_in_{k}"}, {"out": f"f_{k}"}),
            ("mul", {"x": f"f_{k}", "y": f"c_{k}"}, {"out": f"kept_{k}"}),
        ]
    ops.append(("sum", {"x": [f"kept_{k}" for k in children]}, {"out": "kept"}))
    _extend(step.net, [*ops, *_GATES])
    for k in children:
        step.memories.append(MemoryDecl("h", f"h_{k}", child=k))
        step.memories.append(MemoryDecl("c", f"c_{k}", child=k))
    _declare(step.net, [f"{state}_{k}" for state in "hc" for k in children], size)
    return desc, {"u_all": [arity * size, (3 + arity) * size]}


def _extend(net: OpList, ops: Sequence[tuple[Any, ...]]) -> None:
    net.ops.extend(make_op(*op) for op in ops)


def _declare(net: OpList, names: Sequence[str], size: int) -> None:
    net.vars.extend(make_var(name, [-1, size], None, INPUT) for name in names)
