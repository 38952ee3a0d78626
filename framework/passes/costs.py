"""What of a net can be minimized."""

from __future__ import annotations

from ..base.sizes.shape import Shape
from ..ir.desc import FORWARD, PARAMETER
from ..ir.op_list import OpList
from ..ir.registry import lookup


def differentiable_ends(net: OpList) -> dict[str, Shape | None]:
    """Variables that depend on a trainable parameter and that no forward operator reads.

    Returns:
        Name -> shape, None where it is not known, in the order in which they are computed.
    """
    declared = {var.name: var for var in net.vars}
    flows = {v.name for v in net.vars if v.kind == PARAMETER and not v.stop_gradient}
    forward = [op for op in net.ops if op.role == FORWARD]
    ends: dict[str, None] = {}
    for op in forward:
        # A path ends where no gradient goes on, as accuracy does after argmax.
        if lookup(op.type).no_gradient or flows.isdisjoint(op.input_names()):
            continue
        for name in op.output_names():
            if name in declared and not declared[name].stop_gradient:
                flows.add(name)
                ends[name] = None
    read = {name for op in forward for name in op.input_names()}
    return {name: declared[name].shape for name in ends if name not in read}


def possible_costs(net: OpList) -> list[str]:
    """The `differentiable_ends` that are single numbers."""
    ends = differentiable_ends(net).items()
    return [name for name, shape in ends if shape is not None and all(dim == 1 for dim in shape)]
