"""Batch normalization by the statistics of all ranks' batches instead of one rank's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....proto import net_pb2 as pb
from ...base.errors import VariableError, nearest
from ...ir.desc import BACKWARD, FORWARD, make_op
from ...ir.messages import as_op_list
from ...ir.names import (
    BATCH_NORM_APPLY_OP,
    BATCH_NORM_OP,
    BATCH_NORM_SUMS_OP,
    EMPTY,
    RANK_WEIGHT,
    SUM_OP,
    inner_name,
)
from ...ir.op_list import OpList, OpNode
from ...ir.operation import Operator
from ..rewriter import Rewriter, rewrite

_STATISTICS = {"batch_mean": "MEAN", "batch_variance": "VARIANCE", "count": "COUNT"}
"""Inputs of `batch_norm_apply` -> how their variables are called, after the name of `out`."""


@dataclass(frozen=True)
class SyncBatchNorm:
    """Replaces `batch_norm` by `batch_norm_sums` and `batch_norm_apply`, gradients included.

    Those that use running statistics in training stay, and so do those inside loops, whose steps
    the ranks need not have in equal numbers.

    Attributes:
        weight: variable [] with the weight of this rank's loss in the total loss. "": the weight of
            `InsertAllReduce`, which may come before or after; without it, all weigh the same.
    """

    weight: str = ""
    name: str = "sync-batch-norm"

    def apply(self, net: OpList | pb.NetDesc) -> OpList:
        """The net with synchronized statistics; `net` itself stays as it is.

        Raises:
            VariableError: the net has no variable `weight`.
        """
        net = as_op_list(net)
        known = {var.name for var in net.vars}
        if self.weight and self.weight not in known:
            raise VariableError(
                f"{self.name}: the net has no variable {self.weight!r}{nearest(self.weight, known)}"
            )
        return rewrite(net, _Sync(net, self))


class _Sync:
    """The pattern of one net."""

    def __init__(self, net: OpList, options: SyncBatchNorm) -> None:
        weight = options.weight
        if not weight and any(var.name == RANK_WEIGHT for var in net.vars):
            weight = RANK_WEIGHT
        self.weight = {"weight": weight} if weight else {}
        # Where the gradients are there already, they alone read the weight.
        self.early = {} if any(op.role == BACKWARD for op in net.ops) else self.weight
        self.norms: dict[str, Operator] = {}  # by the variable of its mean

    def __call__(self, op: Operator, walk: Rewriter) -> list[OpNode] | None:
        if op.type == BATCH_NORM_OP and not op.attrs["use_global_stats"]:
            return self._forward(op)
        # Known by the mean that it reads; the forward operator has passed before it in the list.
        if op.type == f"{BATCH_NORM_OP}_grad" and op.inputs["saved_mean"][0] in self.norms:
            return self._backward(op)
        return None

    def _forward(self, op: Operator) -> list[OpNode]:
        if "saved_mean" in op.outputs:
            self.norms[op.outputs["saved_mean"][0]] = op
        statistics = _statistics(op)
        sums = {
            "mean": statistics["batch_mean"],
            "variance": statistics["batch_variance"],
            "count": statistics["count"],
        }
        outputs = {slot: list(names) for slot, names in op.outputs.items()}
        return [
            self._op(op, BATCH_NORM_SUMS_OP, {"x": op.inputs["x"], **self.early}, sums),
            self._op(op, BATCH_NORM_APPLY_OP, _slots(op) | statistics, outputs, _numbers(op)),
        ]

    def _backward(self, op: Operator) -> list[OpNode]:
        norm = self.norms[op.inputs["saved_mean"][0]]
        statistics = _statistics(norm)
        grad = op.inputs["out_grad"][0]
        x_grad = op.outputs.get("x_grad", (EMPTY,))[0]
        outputs = {
            slot: op.outputs[slot] for slot in ("scale_grad", "bias_grad") if slot in op.outputs
        }
        saved = {slot: op.inputs[slot][0] for slot in ("saved_mean", "saved_inv_std")}
        reads = _slots(norm) | statistics | saved | {"out_grad": grad}
        kind = f"{BATCH_NORM_APPLY_OP}_grad"
        if x_grad == EMPTY:
            return [self._op(op, kind, reads, outputs, _numbers(op))]
        # x reaches the result in two ways, directly and through the statistics; the second crosses
        # ranks.
        direct, through = inner_name(x_grad, "APPLY"), inner_name(x_grad, "SUMS")
        parts = {slot: inner_name(x_grad, _STATISTICS[slot]) for slot in list(statistics)[:2]}
        outputs |= {"x_grad": direct} | {f"{slot}_grad": name for slot, name in parts.items()}
        sums = {
            "x": norm.inputs["x"],
            **self.weight,
            "mean": statistics["batch_mean"],
            "count": statistics["count"],
            "mean_grad": parts["batch_mean"],
            "variance_grad": parts["batch_variance"],
        }
        return [
            self._op(op, kind, reads, outputs, _numbers(op)),
            self._op(op, f"{BATCH_NORM_SUMS_OP}_grad", sums, {"x_grad": through}),
            self._op(op, SUM_OP, {"x": [direct, through]}, {"out": x_grad}),
        ]

    @staticmethod
    def _op(
        op: Operator, op_type: str, inputs: Mapping, outputs: Mapping, attrs: Mapping | None = None
    ) -> OpNode:
        role = BACKWARD if op.role == BACKWARD else FORWARD
        node = op.node
        return make_op(
            op_type, inputs, outputs, attrs, role=role, device=node.device, source=node.source
        )


def _statistics(op: Operator) -> dict[str, str]:
    """Inputs of the `batch_norm_apply` that replaces an operator -> variables."""
    return {slot: inner_name(op.outputs["out"][0], part) for slot, part in _STATISTICS.items()}


def _slots(op: Operator) -> dict:
    """The inputs of a `batch_norm`, which `batch_norm_apply` has, too."""
    return {slot: list(names) for slot, names in op.inputs.items()}


def _numbers(op: Operator) -> dict:
    return {name: op.attrs[name] for name in ("momentum", "epsilon")}
