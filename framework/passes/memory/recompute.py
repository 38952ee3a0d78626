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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...ir.desc import BACKWARD, FORWARD, OPTIMIZE, PARAMETER, STATE, TEMPORARY
from ...ir.names import BATCH_NORM_OP, again_name
from ...ir.op_list import OpList, OpNode
from ...ir.operation import Operator, expand_op
from ...ir.registry import lookup

_MOVES = ("cast", "concat", "expand", "pad", "reshape", "slice", "split", "squeeze", "transpose")
_ROWS = ("layer_norm", "rms_norm", "softmax", "log_softmax")
_DROPOUT = "dropout"
_STATISTICS = ("mean_out", "variance_out")
CHEAP = frozenset((*_MOVES, *_ROWS))
"""Operators beside the elementwise ones that cost no more than to read and write their values."""


@dataclass(frozen=True)
class Recompute:
    """Computes variables again before gradient operators that read them.

    Left as they are: variables of declared kinds other than TEMPORARY, views and their bases,
    those that are written twice, and operators that are random (but dropout, whose mask is kept)
    or touch the world outside. The values are the same; a loop that is fused otherwise may round
    otherwise.

    Attributes:
        live_out: temporaries that are results, which are kept anyway.
        chosen: operators to repeat, by number, each with the number of the first operator that
            reads what it computes then; each is one that `repeatable` gives. None: the cheap ones
            whose operands gradient operators read anyway.
    """

    live_out: tuple[str, ...] = ()
    chosen: Mapping[int, int] | None = None
    name: str = "recompute"

    def apply(self, net: OpList) -> OpList:
        known = repeatable(net, self.live_out)
        chosen = self.chosen
        if chosen is None:
            first = next((n for n, op in enumerate(net.ops) if op.role == BACKWARD), 0)
            # What only the operator's own gradient reads is kept: it is small.
            results = {n: Operator(net.ops[n], n).results() for n in _cheap(net, known)}
            return repeated(net, known, dict.fromkeys(results, first), results).net
        return repeated(net, known, chosen).net


class Rewritten(NamedTuple):
    """A net that a pass has put operators into.

    Attributes:
        origins: numbers of its operators in the net before; one that was put in has the number of
            the one that it was put before.
        opens: where more may be put before an operator.
    """

    net: OpList
    origins: list[int]
    opens: list[bool]


def repeated(
    net: OpList,
    known: Mapping[int, OpNode],
    chosen: Mapping[int, int],
    results: Mapping[int, Sequence[str]] | None = None,
    units: Sequence[int] = (),
) -> Rewritten:
    """A net with operators that are repeated.

    Args:
        known: what repeats an operator. chosen: see `Recompute`.
        results: what is read of the repeated operators; None: all that they write.
        units: of each operator; operators of one unit stay together, and are repeated together.
            Empty: each is a unit of its own.
    """
    together: dict[int, list[int]] = {}
    unit_of = units or range(len(net.ops))
    for number, unit in enumerate(unit_of):
        together.setdefault(unit, []).append(number)
    read_of = {n: known[n].output_names() if results is None else results[n] for n in chosen}
    made_by = {name: number for number, names in read_of.items() for name in names}
    ops: list[OpNode] = []
    origins: list[int] = []
    opens: list[bool] = []
    renames: dict[str, str] = {}
    added: dict[str, str] = {}

    def again(wanted: int, reader: int) -> None:
        # A chain of repeated operators may be as long as the net: no recursion.
        waiting = [wanted]
        while waiting:
            members = together[unit_of[waiting[-1]]]
            needed = [
                made_by[r]
                for number in members
                for r in known[number].input_names()
                if r in made_by and r not in renames and chosen[made_by[r]] <= reader
                if made_by[r] not in members
            ]
            if needed:
                waiting += reversed(needed)
                continue
            waiting.pop()
            # Two readers of a chain may both have asked for it.
            if read_of[members[0]][0] in renames:
                continue
            role = BACKWARD if net.ops[reader].role == BACKWARD else FORWARD
            for number in members:
                op = known[number]
                own = {out: again_name(out) for out in op.output_names()}
                added.update(own)
                ops.append(op.renamed(renames).renamed(own).changed(role=role))
                origins.append(reader)
                opens.append(number == members[0])
                renames.update((name, own[name]) for name in read_of[number])

    inside = 0  # the last operator of the units that have begun
    for index, node in enumerate(net.ops):
        members = together[unit_of[index]]
        opens_here = index == members[0] and index >= inside
        inside = max(inside, members[-1] + 1)
        if index == members[0]:
            for reader in members:
                if net.ops[reader].role == OPTIMIZE:
                    continue
                for name in Operator(net.ops[reader], reader).value_reads():
                    number = made_by.get(name)
                    if number is not None and name not in renames and chosen[number] <= index:
                        again(number, index)
        ops.append(node if node.role == OPTIMIZE else node.renamed(renames))
        origins.append(index)
        opens.append(opens_here)
    declared = {var.name: var for var in net.vars}
    result = net.copy()
    result.ops = ops
    result.vars = [*net.vars]
    result.vars += [
        declared[name].changed(name=other) for name, other in added.items() if name in declared
    ]
    return Rewritten(result, origins, opens)


def repeatable(net: OpList, live_out: Collection[str] = ()) -> dict[int, OpNode]:
    """The forward operators that may run a second time, later, with the same results; each with
    what does it, which may write less. Those that do so already are not among them."""
    written = _writes(net)
    kinds = {var.name: var.kind for var in net.vars}
    results = {name for name, kind in kinds.items() if kind != TEMPORARY}.union(live_out)
    views = [(var.name, var.view.base) for var in net.vars if var.view is not None]
    aliased = {name for pair in views for name in pair}
    fixed = results | aliased
    changing = {name for name in written if kinds.get(name) in (PARAMETER, STATE)}
    known: dict[int, OpNode] = {}
    for index, node in enumerate(net.ops):
        if node.role != FORWARD:
            continue
        node = _without_statistics(node)
        read = set(Operator(node, index).value_reads())
        if node.type == BATCH_NORM_OP:
            # Those that run in training take the statistics of the batch; others change none.
            read -= changing
        wanted = node.output_names()
        if (
            fixed.isdisjoint(wanted)
            and all(written[name] == 1 and not written[again_name(name)] for name in wanted)
            and all(written[name] <= 1 and name not in aliased for name in read)
            and changing.isdisjoint(read)
            and (_is_deterministic(node) or _keeps_mask(node))
        ):
            known[index] = _repeating(node)
    return known


def _without_statistics(node: OpNode) -> OpNode:
    """A batch normalization that leaves the running statistics alone."""
    if node.type != BATCH_NORM_OP:
        return node
    outputs = {slot: names for slot, names in node.outputs.items() if slot not in _STATISTICS}
    return OpNode(node.type, node.inputs, outputs, node.attrs, node.role, node.device, node.source)


def _is_deterministic(node: OpNode) -> bool:
    """Whether an operator gives the same each time. One that holds a net does not count: what its
    gradient reads is in memory of its own, which would not be freed."""
    for one in expand_op(node):
        entry = lookup(one.type)
        if entry.random or entry.world or entry.boundary or any(one.inner_nets()):
            return False
    return True


def _cheap(net: OpList, known: Mapping[int, OpNode]) -> list[int]:
    """Operators that cost little and read what is in memory anyway."""
    reads = _backward_reads(net)
    written = _writes(net)
    results = {var.name for var in net.vars if var.kind != TEMPORARY}
    # As a gradient reads it, or it is the caller's: repeating keeps nothing more alive.
    kept = results | reads
    chosen: list[int] = []
    for index in known:
        op = Operator(net.ops[index], index)
        wanted = op.results()
        if (
            len(wanted) == 1
            and _is_cheap(op)
            and all(name in kept or not written[name] for name in op.value_reads())
        ):
            chosen.append(index)
            kept.update(wanted)
    return chosen


def _is_cheap(op: Operator) -> bool:
    entry = op.entry
    if op.type == _DROPOUT:
        return "mask" in op.outputs
    return (bool(entry.expressions) or op.type in CHEAP) and not (entry.random or entry.world)


def _keeps_mask(node: OpNode) -> bool:
    return node.type == _DROPOUT and bool(node.outputs.get("mask"))


def _repeating(node: OpNode) -> OpNode:
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
