"""Recomputation: cheap activations are computed again for the gradients, instead of being kept.

A variable that gradient operators read is in memory from its operator on until they run. Where
its operator is elementwise (or a normalization of rows, or only moves values), and what that
operator reads is in memory anyway, the pass appends the operator a second time, right before the
first gradient operator that reads its result. The first result then dies with the forward pass.
gelu between two layers is such a case: its gradient keeps its input, and the gradient of the
next layer's weights wants its output.

Source: Chen and others, Training Deep Nets with Sublinear Memory Cost (2016); here no operator of
more than linear cost is repeated.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..ir.desc import BACKWARD, FORWARD, OPTIMIZE, TEMPORARY
from ..ir.names import again_name
from ..ir.op_list import OpList, OpNode
from ..ir.operation import Operator

_MOVES = ("cast", "concat", "expand", "pad", "reshape", "slice", "split", "squeeze", "transpose")
_ROWS = ("layer_norm", "rms_norm", "softmax", "log_softmax")
_DROPOUT = "dropout"
CHEAP = frozenset((*_MOVES, *_ROWS))
"""Operators beside the elementwise ones that cost no more than to read and write their values."""


@dataclass(frozen=True)
class Recompute:
    """Computes cheap variables again before gradient operators that read them.

    Left as they are: variables of declared kinds other than TEMPORARY, views and their bases,
    those that are written twice, and operators that are random (but dropout, whose mask is kept)
    or touch the world outside. The values are the same; a loop that is fused otherwise may round
    otherwise.

    Attributes:
        live_out: temporaries that are results, which are kept anyway.
    """

    live_out: tuple[str, ...] = ()
    name: str = "recompute"

    def apply(self, net: OpList) -> OpList:
        chosen = self._chosen(net)
        ops: list[OpNode] = []
        renames: dict[str, str] = {}
        added: dict[str, str] = {}

        def again(wanted: str) -> None:
            # A chain of cheap operators may be as long as the net: no recursion.
            waiting = [wanted]
            while waiting:
                name = waiting[-1]
                op = chosen[name]
                needed = [r for r in op.input_names() if r in chosen and r not in renames]
                if needed:
                    waiting += reversed(needed)
                    continue
                waiting.pop()
                # Two readers of a chain may both have asked for it.
                if name in renames:
                    continue
                own = {out: again_name(out) for out in op.output_names()}
                added.update(own)
                ops.append(op.renamed(renames).renamed(own).changed(role=BACKWARD))
                renames[name] = own[name]

        for index, node in enumerate(net.ops):
            if node.role == BACKWARD:
                for name in Operator(node, index).value_reads():
                    if name in chosen:
                        again(name)
                node = node.renamed(renames)
            ops.append(node)
        declared = {var.name: var for var in net.vars}
        result = net.copy()
        result.ops = ops
        result.vars = [*net.vars]
        result.vars += [
            declared[name].changed(name=other) for name, other in added.items() if name in declared
        ]
        return result

    def _chosen(self, net: OpList) -> dict[str, OpNode]:
        """The variables that can be computed again, each with the operator that does it."""
        reads = _backward_reads(net)
        written = _writes(net)
        results = {var.name for var in net.vars if var.kind != TEMPORARY}.union(self.live_out)
        views = [(var.name, var.view.base) for var in net.vars if var.view is not None]
        aliased = {name for pair in views for name in pair}
        fixed = results | aliased
        chosen: dict[str, OpNode] = {}
        for index, node in enumerate(net.ops):
            op = Operator(node, index)
            wanted = op.results()
            if (
                node.role == FORWARD
                and len(wanted) == 1
                and fixed.isdisjoint(wanted)
                and _is_cheap(op)
                and all(written[name] == 1 for name in op.output_vars())
                and all(
                    name in chosen
                    or (name in results and written[name] <= 1 and name not in aliased)
                    # In memory anyway, as a gradient reads it: recomputing keeps nothing more
                    # alive.
                    or (name in reads and written[name] == 1 and name not in aliased)
                    for name in op.value_reads()
                )
            ):
                chosen[wanted[0]] = _repeatable(node)
        return chosen


def _is_cheap(op: Operator) -> bool:
    entry = op.entry
    if op.type == _DROPOUT:
        return "mask" in op.outputs
    return (bool(entry.expressions) or op.type in CHEAP) and not (entry.random or entry.world)


def _repeatable(node: OpNode) -> OpNode:
    """An operator with the same result that may run later.

    For dropout that is its gradient, which multiplies by the mask that was drawn.
    """
    if node.type != _DROPOUT:
        return node
    reads = {"x": node.inputs["x"], "mask": node.outputs["mask"], "out_grad": node.inputs["x"]}
    writes = {"x_grad": node.outputs["out"]}
    return OpNode(f"{_DROPOUT}_grad", reads, writes, node.attrs, BACKWARD, node.device, node.source)


def _backward_reads(net: OpList) -> set[str]:
    """Variables whose values some gradient operator reads."""
    return {
        name
        for index, node in enumerate(net.ops)
        if node.role == BACKWARD
        for name in Operator(node, index).value_reads()
    }


def _writes(net: OpList) -> Counter[str]:
    """How often each variable is written before the updates."""
    return Counter(
        name for node in net.ops if node.role != OPTIMIZE for name in node.output_names()
    )
