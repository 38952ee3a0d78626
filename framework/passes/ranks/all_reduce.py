"""Data-parallel training as operators: gradients are summed over ranks before they are used.

Each rank runs the forward and backward operators on a part of the batch. Between these and the
update operators the pass puts sums over all ranks: of gradients as large as parameters in buckets,
of gradients with rows for a part of a table row by row. What follows, clipping by a global norm and
checks for finite values included, sees the sums, so that all ranks update alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....proto import net_pb2 as pb
from ...base.errors import AttributeTypeError, GradientError, VariableError, nearest
from ...base.sizes.shape import count
from ...ir.desc import BACKWARD, FORWARD, OPTIMIZE, TEMPORARY, make_op, make_var
from ...ir.messages import as_op_list
from ...ir.names import (
    ALL_REDUCE_OP,
    ALL_REDUCE_START_OP,
    ALL_REDUCE_WAIT_OP,
    BATCH_NORM_SUMS_OP,
    COUNT_OP,
    FILL_OP,
    GATHER_ROWS_OP,
    GRAD_SUFFIX,
    RANK_WEIGHT,
    RANK_WEIGHT_TOTAL,
    SEED_OP,
    all_ranks_name,
    rows_name,
    ticket_name,
)
from ...ir.op_list import OpList, OpNode, VarDecl
from ...ir.registry import lookup

AUTO, SUM, MEAN = "auto", "sum", "mean"
_MEANS: Mapping[str, tuple[str, ...]] = {
    "mean": ("x",),
    "reduce_mean": ("x",),
    "masked_mean": ("x", "mask"),
}
"""Operators that end a loss -> the inputs that say what they divide by."""
_SUM_OP = "reduce_sum"
_STATISTICS_GRAD = f"{BATCH_NORM_SUMS_OP}_grad"
WORTH = 1 << 16
"""Bytes from which a bucket is worth two operators that send it while others run."""


@dataclass(frozen=True)
class InsertAllReduce:
    """Puts sums over ranks between backward and update operators.

    Attributes:
        weight: how the losses of the ranks combine to the total loss. "auto": as the loss says: a
            mean counts by the number of elements that it is over (of `masked_mean`, by the sum of
            the mask), a sum is added. "sum": gradients are added. "mean": they are averaged. Else
            the name of a variable [] of the net: the weight of this rank's loss; the gradient
            belongs to sum(weight loss) / sum(weight). Synchronized batch normalization also gets
            the weight.
        bucket_bytes: size of a bucket, which is one message. Gradients go into buckets in the order
            in which the backward pass finishes them; the default is the same as in PyTorch's DDP.
        overlap: whether a bucket is sent while later backward operators run. Without it buckets
            are filled in the order in which the updates read the gradients: the same for nets that
            differ in their backward operators alone.
        rows: rows that gradients of a part of a table may have over all ranks; 0: as many as the
            table.
    """

    weight: str = AUTO
    bucket_bytes: int = 25 << 20
    overlap: bool = True
    rows: int = 0
    name: str = "insert-all-reduce"

    def __post_init__(self) -> None:
        if self.bucket_bytes < 1 or self.rows < 0:
            raise AttributeTypeError(
                f"{self.name}: bucket_bytes must be above 0 and rows at least 0, not"
                f" {self.bucket_bytes} and {self.rows}"
            )

    def apply(self, net: OpList | pb.NetDesc) -> OpList:
        """The net with sums over ranks; `net` itself stays as it is.

        Raises:
            GradientError: no update operator reads a gradient, the gradients are summed already, or
                with weight="auto" the loss is neither a mean nor a sum.
            VariableError: the net has no variable `weight`.
        """
        return GradientExchange(as_op_list(net), self).net


@dataclass
class Gradient:
    """A gradient that update operators read.

    Attributes:
        done: index of the last operator before the updates that touches it.
    """

    name: str
    done: int
    nbytes: int
    dtype: np.dtype | None
    sparse: bool


@dataclass
class Bucket:
    """Gradients that are one message."""

    members: list[Gradient] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Index of the last operator that touches one of them."""
        return max(one.done for one in self.members)

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return sum(one.nbytes for one in self.members)

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [one.name for one in self.members]


class GradientExchange:
    """A net in which gradients are exchanged before its updates.

    Attributes:
        net: the net that is made. vars: its variables by name.
        updates: index of the first update operator.
        before: index -> operators that go before that one.
        weights: slots of the rank's weight and the sum of all, for what forms sums. mode: of these.
        bases: views -> the variables that they are of.
    """

    def __init__(self, net: OpList, options: InsertAllReduce) -> None:
        self.options = options
        self.net = net.copy()
        self.vars = {var.name: var for var in net.vars}
        self.bases = {var.name: var.view.base for var in net.vars if var.view is not None}
        self.updates = first_update(net)
        gradients = self._gradients()
        self.before: dict[int, list[OpNode]] = {}
        self.weights: dict[str, str] = {}
        self.mode = SUM
        self._weigh()
        renames = self._gather([one for one in gradients if one.sparse])
        self.exchange([one for one in gradients if not one.sparse])
        ops: list[OpNode] = []
        for index, op in enumerate(net.ops):
            ops += self.before.get(index, ())
            if op.type == _STATISTICS_GRAD and "weight" in self.weights:
                op = op.changed(inputs={"weight": (self.weights["weight"],), **op.inputs})
            ops.append(op.renamed(renames) if index >= self.updates else op)
        self.net.ops = ops
        self.net.vars = list(self.vars.values())

    # -- what is there ---------------------------------------------------------------------------

    def _gradients(self) -> list[Gradient]:
        """The gradients, in the order in which they are finished."""
        net, end = self.net, self.updates
        written = {
            name for op in net.ops[:end] if op.role == BACKWARD for name in op.output_names()
        }
        read: dict[str, None] = {}
        for op in net.ops[end:]:
            read.update(dict.fromkeys(name for name in op.input_names() if name in written))
        rows = {rows_name(name) for name in read} & read.keys()
        touched: dict[str, int] = {}
        for index, op in enumerate(net.ops[:end]):
            for name in (*op.input_names(), *op.output_names()):
                # Readers count, too: a gradient that is being summed must not be read halfway.
                touched[self.bases.get(name, name)] = index
            summed = lookup(op.type).world and not rows.isdisjoint(op.output_names())
            if summed or (op.type.startswith(ALL_REDUCE_OP) and not _apart(op, read)):
                raise GradientError(f"the gradients are summed over ranks already, by op {index}")
        gradients = [
            self._gradient(name, touched[self.bases.get(name, name)], rows_name(name) in rows)
            for name in read
            if name not in rows
        ]
        # In the order in which they are finished, so that the first bucket leaves as early as it
        # can.
        return sorted(gradients, key=lambda one: one.done) if self.options.overlap else gradients

    def _gradient(self, name: str, done: int, sparse: bool) -> Gradient:
        var = self.vars.get(name)
        own = self.vars.get(name.removesuffix(GRAD_SUFFIX))
        known = [one for one in (var, own) if one is not None]
        shapes = [one.shape for one in known if one.shape is not None and count(one.shape) >= 0]
        dtype = next((one.dtype for one in known if one.dtype is not None), None)
        size = count(shapes[0]) if shapes else 0
        return Gradient(name, done, size * (dtype.itemsize if dtype else 4), dtype, sparse)

    # -- weights ---------------------------------------------------------------------------------

    def _weigh(self) -> None:
        """The weight of this rank and the sum of all, found before the backward operators."""
        weight = self.options.weight
        reads = {}
        if weight == AUTO:
            reads = self._denominator()
            if not reads:
                return
            # float64: counts of elements beyond 2^24 are not exact in float32.
            weight = self.declare(RANK_WEIGHT, (), "float64")
        elif weight in (SUM, MEAN):
            self.mode = weight
            return
        elif weight not in self.vars:
            known = [AUTO, SUM, MEAN, *self.vars]
            raise VariableError(
                f"{self.options.name}: the net has no variable {weight!r}{nearest(weight, known)}"
            )
        total = self.declare(RANK_WEIGHT_TOTAL, (), self.vars[weight].dtype)
        roles = [op.role for op in self.net.ops]
        # Before the backward operators, as synchronized batch normalization reads the weight among
        # them.
        placed = self.before.setdefault(roles.index(BACKWARD), [])
        if reads:
            placed.append(make_op(COUNT_OP, reads, {"out": weight}, role=BACKWARD))
        placed.append(make_op(ALL_REDUCE_OP, {"x": weight}, {"out": total}, role=BACKWARD))
        self.weights = {"weight": weight, "total": total}

    def _denominator(self) -> dict[str, str]:
        """What the loss is divided by, as inputs of `element_count`; none where it is a sum."""
        targets = [
            op.inputs["x"][0]
            for op in self.net.ops
            if op.role == BACKWARD
            and (op.type == SEED_OP or (op.type == FILL_OP and op.attrs.get("value") == 1.0))
        ]
        how = f'say weight="{SUM}", weight="{MEAN}" or the name of a variable with the weight'
        if len(targets) != 1:
            raise GradientError(f"the net has {len(targets)} losses that are differentiated: {how}")
        ends = [op for op in self.net.ops if op.role == FORWARD and targets[0] in op.output_names()]
        end = ends[-1] if ends else None
        shape = self.vars[targets[0]].shape
        if shape is None or count(shape) != 1:
            raise GradientError(f"the loss {targets[0]!r} is not known to be one number: {how}")
        if end is not None and end.type in _MEANS:
            return {slot: end.inputs[slot][0] for slot in _MEANS[end.type]}
        if end is not None and end.type == _SUM_OP:
            return {}
        kind = "given from outside" if end is None else f"made by {end.type}"
        raise GradientError(
            f"the loss {targets[0]!r} is {kind}, so that it is not known how the losses of ranks"
            f" combine to the total loss: {how}"
        )

    # -- operators -------------------------------------------------------------------------------

    def _gather(self, gradients: Sequence[Gradient]) -> dict[str, str]:
        """Sums of gradients with rows; the names that update operators read in their place."""
        renames: dict[str, str] = {}
        for one in gradients:
            rows = rows_name(one.name)
            table = one.name.removesuffix(GRAD_SUFFIX)
            out = all_ranks_name(one.name)
            reads = {"x": one.name, "rows": rows, "like": table, **self.weights}
            writes = {"out": out, "rows_out": rows_name(out)}
            attrs = {"mode": self.mode, "most": self.options.rows}
            gather = make_op(GATHER_ROWS_OP, reads, writes, attrs, role=BACKWARD)
            self.before.setdefault(self.updates, []).append(gather)
            var = self.vars.get(table)
            shape = None if var is None or var.shape is None else var.shape
            if shape is not None:
                first = self.options.rows or shape[0]
                self.declare(out, (first, *shape[1:]), one.dtype)
                numbers = self.vars.get(rows)
                self.declare(rows_name(out), (first,), numbers.dtype if numbers else None)
            renames |= {one.name: out, rows: rows_name(out)}
        return renames

    def exchange(self, gradients: Sequence[Gradient]) -> None:
        """Place the sums of dense gradients."""
        buckets = in_buckets(gradients, self.options.bucket_bytes)
        ends: list[OpNode] = []
        # A bucket that is finished last has nothing left to run beside: one operator does it.
        last = max((b.done for b in buckets), default=-1)
        attrs = {"mode": self.mode} if self.mode != SUM else {}
        for number, bucket in enumerate(buckets):
            names = bucket.names
            if self.options.overlap and bucket.done < last and bucket.nbytes >= WORTH:
                ticket = self.declare(ticket_name(number), (), "int64")
                reads = {"x": names, **self.weights}
                writes = {"lent": names, "ticket": ticket}
                start = make_op(ALL_REDUCE_START_OP, reads, writes, role=BACKWARD)
                self.before.setdefault(bucket.done + 1, []).append(start)
                reads = {"x": names, "ticket": ticket}
                writes = {"out": names}
                ends.append(make_op(ALL_REDUCE_WAIT_OP, reads, writes, attrs, role=BACKWARD))
            else:
                reads = {"x": names, **self.weights}
                ends.append(make_op(ALL_REDUCE_OP, reads, {"out": names}, attrs, role=BACKWARD))
        self.before.setdefault(self.updates, []).extend(ends)

    def declare(self, name: str, shape: tuple[int, ...], dtype: Any) -> str:
        """A temporary of the net, and its name."""
        var = VarDecl(name) if dtype is None else make_var(name, shape, dtype, TEMPORARY)
        self.vars.setdefault(name, var)
        return name


def first_update(net: OpList) -> int:
    """Index of the first update operator; some must read what backward operators have written."""
    written = {name for op in net.ops if op.role == BACKWARD for name in op.output_names()}
    updates = [(index, op) for index, op in enumerate(net.ops) if op.role == OPTIMIZE]
    if any(not written.isdisjoint(op.input_names()) for _, op in updates):
        return updates[0][0]
    raise GradientError(
        "no update operator reads a gradient: add_backward_ops and add_optimizer_ops first"
    )


def _apart(op: OpNode, names: Mapping[str, None]) -> bool:
    return names.keys().isdisjoint(op.output_names())


def in_buckets(gradients: Sequence[Gradient], limit: int) -> list[Bucket]:
    """Gradients of one dtype in buckets of at most `limit` bytes, in order; a large one alone."""
    buckets: list[Bucket] = []
    filling: dict[np.dtype | None, Bucket] = {}
    for one in gradients:
        bucket = filling.get(one.dtype)
        # The former bucket of this dtype is full; one of another dtype may go on filling.
        if bucket is None or bucket.nbytes + one.nbytes > limit:
            bucket = filling[one.dtype] = Bucket()
            buckets.append(bucket)
        bucket.members.append(one)
    return buckets
