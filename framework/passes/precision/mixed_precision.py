"""Updates of parameters in half precision, and updates by gradients of a scaled loss.

What the optimizer pass has made is rewritten, whatever the optimizer: gradients are converted to
float32 and the scale of the loss is undone; float32 copies of the parameters, the masters, take
their place, with states in float32; and where a step may be skipped, every state gets its new value
at the end, if all gradients were finite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...base.dtypes import HALVES, SINGLE
from ...ir.desc import OPTIMIZE, PARAMETER, STATE, make_op, make_var
from ...ir.names import (
    COMMIT_OP,
    FINITE,
    STORE_OP,
    SYNC_OP,
    UNDO_OP,
    UNSCALE,
    grad_name,
    next_name,
    state_name,
    unscaled_name,
)
from ...ir.op_list import OpNode, VarDecl


def in_mixed_precision(
    declared: Mapping[str, VarDecl],
    ops: Sequence[OpNode],
    added: Sequence[VarDecl],
    *,
    master: bool,
) -> tuple[list[OpNode], list[VarDecl]]:
    """The operators and variables of an optimizer, rewritten for the parameters' dtypes.

    They are as they were where no parameter is of half precision and no loss is scaled.

    Args:
        declared: the variables of the net.
        ops, added: update operators, and the variables that they add.
        master: whether parameters of half precision have masters.
    """
    written = {name for op in ops for name in op.output_names()}
    params = [v for v in declared.values() if v.kind == PARAMETER and v.name in written]
    halves = [v for v in params if v.dtype in HALVES] if master else []
    if not halves and UNSCALE not in declared:
        return list(ops), list(added)
    work = _Rewriter(declared, params, halves)
    variables = [_single(var) if master else var for var in added]
    variables += [_master(var) for var in halves if work.masters[var.name] not in declared]
    kept = {v.name for v in (*declared.values(), *variables) if v.kind in (PARAMETER, STATE)}
    for op in ops:
        work.rewrite(op, kept)
    return work.syncs + work.ops, variables


class _Rewriter:
    """Rewrites operators one by one.

    Attributes:
        ops: what was made of them. masters: parameter -> its master.
        syncs: what comes before: apart, so that the updates become one loop.
    """

    def __init__(
        self,
        declared: Mapping[str, VarDecl],
        params: Iterable[VarDecl],
        halves: Iterable[VarDecl],
    ) -> None:
        self.ops: list[OpNode] = []
        self.syncs: list[OpNode] = []
        self.masters = {var.name: state_name(var.name, "master") for var in halves}
        self._scaled = {"grad_scale": UNSCALE} if UNSCALE in declared else {}
        self._skips = FINITE in declared
        self._dtypes = {var.name: var.dtype for var in params}
        self._of = {grad_name(var.name): var.name for var in params}
        self._renames: dict[str, str] = {}

    def rewrite(self, op: OpNode, kept: set[str]) -> None:
        """Append what an operator becomes; `kept` are parameters and states."""
        for name in op.input_names():
            if name in self._renames:
                continue
            if name in self.masters:
                inputs = {"param": name, "master": self.masters[name]}
                # A master follows its parameter where the user or a file has set that since the
                # last step.
                self.syncs.append(_op_like(op, SYNC_OP, inputs, {"out": self.masters[name]}))
                self._renames[name] = self.masters[name]
            elif name in self._of:
                self._convert(op, name)
        stored = [name for name in op.output_names() if name in self.masters]
        update = op.renamed(self._renames)
        self.ops.append(self._skippable(update, kept) if self._skips else update)
        for name in update.output_names() if self._skips else ():
            if name in kept:
                inputs = {"new": next_name(name), "old": name, "finite": FINITE}
                self.ops.append(_op_like(op, COMMIT_OP, inputs, {"out": name}))
        # After the commits: a step that is skipped stores the old master again.
        for name in stored:
            attrs = {"dtype": self._dtypes[name]}
            self.ops.append(_op_like(op, STORE_OP, {"x": self.masters[name]}, {"out": name}, attrs))

    def _convert(self, op: OpNode, grad: str) -> None:
        param = self._of[grad]
        dtype = SINGLE if param in self.masters else self._dtypes[param]
        if self._scaled or param in self.masters:
            self._renames[grad] = unscaled_name(grad)
            inputs = {"x": grad, **self._scaled}
            out = {"out": self._renames[grad]}
            self.ops.append(_op_like(op, UNDO_OP, inputs, out, {"dtype": dtype}))

    def _skippable(self, op: OpNode, kept: set[str]) -> OpNode:
        """The operator with results beside the variables that they are for."""
        outputs = {
            slot: tuple([next_name(name) if name in kept else name for name in names])
            for slot, names in op.outputs.items()
        }
        return op.changed(outputs=outputs)


def _op_like(
    like: OpNode,
    op_type: str,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    attrs: Mapping[str, Any] | None = None,
) -> OpNode:
    return make_op(op_type, inputs, outputs, attrs, role=OPTIMIZE, source=like.source)


def _single(var: VarDecl) -> VarDecl:
    """A state in float32 instead of half precision."""
    fill = var.initializer
    if var.dtype not in HALVES or fill is None:
        return var
    fill = fill.changed(attrs={**fill.attrs, "dtype": SINGLE})
    return var.changed(dtype=SINGLE, initializer=fill)


def _master(var: VarDecl) -> VarDecl:
    """The float32 copy of a parameter; it begins as the parameter's own first value."""
    name = state_name(var.name, "master")
    fill = make_op(STORE_OP, {"x": var.name}, {"out": name}, {"dtype": SINGLE})
    return make_var(name, var.shape, SINGLE, STATE, initializer=fill, source=var.source)
