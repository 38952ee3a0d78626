"""Gradients of several minibatches before one update, as operators of the list.

After each minibatch its gradients are added up, weighted as ranks weigh theirs; the updates read
the mean, and clear the sums. A run up to the first update operator adds a minibatch, a run from
there on updates, so that k minibatches and one update train as one minibatch of all their rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...proto import net_pb2 as pb
from ..base.dtypes import wide
from ..base.errors import GradientError
from ..base.sizes.shape import Shape
from ..ir.desc import BACKWARD, OPTIMIZE, STATE, TEMPORARY, make_op, make_var
from ..ir.messages import as_op_list
from ..ir.names import (
    CAST_OP,
    FILL_OP,
    GRAD_SUFFIX,
    RANK_WEIGHT_TOTAL,
    accumulated_name,
    rows_name,
)
from ..ir.op_list import OpList, OpNode
from .ranks.all_reduce import first_update


@dataclass(frozen=True)
class AccumulateGradients:
    """Adds up gradients until the updates run; goes after `InsertAllReduce` or `ShardTraining`.

    A loss that is a mean counts by the weight that these have found, another one is a sum.
    """

    name: str = "accumulate-gradients"

    def apply(self, net: OpList | pb.NetDesc) -> OpList:
        """The net with sums of gradients, which are states; `net` itself stays as it is.

        Raises:
            GradientError: no update reads a gradient, or one has rows for a part of a table or
                an unknown shape.
        """
        return _Accumulator(as_op_list(net)).net


class _Accumulator:
    def __init__(self, net: OpList) -> None:
        self.net = net.copy()
        self._vars = {var.name: var for var in net.vars}
        first = first_update(net)
        written = {n for op in net.ops[:first] if op.role == BACKWARD for n in op.output_names()}
        read = dict.fromkeys(n for op in net.ops[first:] for n in op.input_names() if n in written)
        weighted = RANK_WEIGHT_TOTAL in self._vars
        adds: list[OpNode] = []
        means: list[OpNode] = []
        clears: list[OpNode] = []
        total = accumulated_name(RANK_WEIGHT_TOTAL)
        if weighted:
            self._state(total, (), "float64")
            reads = {"x": total, "y": RANK_WEIGHT_TOTAL}
            adds.append(make_op("add", reads, {"out": total}, role=BACKWARD))
            clears.append(_clear(total))
        renames: dict[str, str] = {}
        for grad in read:
            self._check(grad, read)
            renames[grad] = self._accumulate(grad, total if weighted else "", adds, means, clears)
        updates = [op.renamed(renames) for op in net.ops[first:]]
        self.net.ops = [*net.ops[:first], *adds, *means, *updates, *clears]
        self.net.vars = list(self._vars.values())

    def _check(self, grad: str, read: dict[str, None]) -> None:
        var = self._vars.get(grad)
        if rows_name(grad) in read or rows_name(grad) in self._vars:
            raise GradientError(
                f"accumulate: the gradient {grad!r} has rows for a part of a table: build the"
                " embedding with sparse=False"
            )
        own = var or self._vars.get(grad.removesuffix(GRAD_SUFFIX))
        if own is None or own.shape is None or min(own.shape, default=0) < 0 or own.dtype is None:
            raise GradientError(f"accumulate: the shape of the gradient {grad!r} is not known")

    def _accumulate(
        self,
        grad: str,
        total: str,
        adds: list[OpNode],
        means: list[OpNode],
        clears: list[OpNode],
    ) -> str:
        """Operators for one gradient; the name under which the updates read its mean."""
        own = self._vars.get(grad) or self._vars[grad.removesuffix(GRAD_SUFFIX)]
        assert own.shape is not None and own.dtype is not None
        dtype = wide(own.dtype)  # sums of halves would lose digits
        summed = accumulated_name(grad)
        self._state(summed, own.shape, dtype)
        added = grad
        if dtype != own.dtype:
            added = self._temporary(f"{summed}@TERM", own.shape, dtype)
            adds.append(_cast(grad, added, dtype, BACKWARD))
        clears.append(_clear(summed))
        if not total:
            reads = {"x": summed, "y": added}
            adds.append(make_op("add", reads, {"out": summed}, role=BACKWARD))
            return summed
        weight = f"{RANK_WEIGHT_TOTAL}@{dtype.name.upper()}"
        divisor = f"{total}@{dtype.name.upper()}"
        for name, source, ops, role in (
            (weight, RANK_WEIGHT_TOTAL, adds, BACKWARD),
            (divisor, total, means, OPTIMIZE),
        ):
            if name not in self._vars:
                self._temporary(name, (), dtype)
                ops.append(_cast(source, name, dtype, role))
        product = self._temporary(f"{summed}@PRODUCT", own.shape, dtype)
        mean = self._temporary(f"{summed}@MEAN", own.shape, dtype)
        adds.append(make_op("mul", {"x": added, "y": weight}, {"out": product}, role=BACKWARD))
        adds.append(make_op("add", {"x": summed, "y": product}, {"out": summed}, role=BACKWARD))
        means.append(make_op("div", {"x": summed, "y": divisor}, {"out": mean}, role=OPTIMIZE))
        return mean

    def _temporary(self, name: str, shape: Shape, dtype: object) -> str:
        self._vars[name] = make_var(name, shape, dtype, TEMPORARY)
        return name

    def _state(self, name: str, shape: Shape, dtype: object) -> None:
        attrs = {"shape": list(shape), "dtype": make_var(name, shape, dtype).dtype, "value": 0.0}
        fill = make_op("fill_constant", {}, {"out": name}, attrs)
        self._vars[name] = make_var(name, shape, dtype, STATE, initializer=fill)


def _clear(name: str) -> OpNode:
    return make_op(FILL_OP, {"x": name}, {"out": name}, {"value": 0.0}, role=OPTIMIZE)


def _cast(name: str, out: str, dtype: np.dtype, role: int) -> OpNode:
    return make_op(CAST_OP, {"x": name}, {"out": out}, {"dtype": dtype}, role=role)
