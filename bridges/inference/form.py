"""Op lists in inference form.

Operators that the outputs do not need fall away: gradients, updates, losses, metrics and with them
labels. What is left is in test phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError, VariableError, nearest
from ...framework.base.sizes.shape import ArraySpec
from ...framework.ir.desc import FORWARD, INPUT, make_op
from ...framework.ir.infer import declared_spec, infer_specs
from ...framework.ir.names import COPY_OP
from ...framework.ir.op_list import OpList, OpNode, VarDecl
from ...framework.ir.operation import Operator
from ...framework.ir.registry import Expansion, lookup
from ...framework.ir.results import net_results
from ...framework.passes.lowering import lower
from ...framework.passes.rewriter import Rewriter, rewrite
from ...framework.runtime.initialize import PERSISTENT
from ...operators.names import SYSTEMS

_TRAINING_ONLY = {
    "batch_norm_apply": {"batch_mean", "batch_variance", "count"},
    "cntk.batch_norm": {"seen", "time", "blend"},
}
"""Input slots that operators read in training alone."""
_WRITE_IN_TRAINING = {"cntk.batch_norm"}
"""Operators that leave their states alone in test phase, beside those whose slots say so."""
_MASK = "cntk.dropout_mask"


class ExportError(OpscopeError):
    """A net that another format has no form for, or a written one that computes something else."""


@dataclass(frozen=True)
class Inference:
    """A net cut down to what some outputs need.

    Attributes:
        net: its operators are plain, or kept whole, and FORWARD ones.
        operators: of `net`, checked.
        inputs: declarations, in the order of the net. outputs: names.
        specs: shape (-1: unknown) and dtype of each variable, where that is known.
        whole: the net that it was cut from, in plain operators.
        steps: inputs that hold a sequence -> the name of its length; equal ones are equally long.
    """

    net: OpList
    whole: OpList
    operators: list[Operator]
    inputs: list[VarDecl]
    outputs: list[str]
    specs: dict[str, ArraySpec]
    steps: dict[str, str]


def inference_form(
    net: OpList, outputs: Iterable[str] | None = None, use: str = "ONNX"
) -> Inference:
    """The operators that outputs need.

    Args:
        net: any; composites are expanded, except for those that nets keep whole.
        outputs: names of variables. None: the results of the net (`net_results`).
        use: what it is exported to, for errors.

    Raises:
        VariableError: there is no such variable, or nothing to export.
    """
    whole = rewrite(_lowered(net, use), _without_mask)
    forward = [op for op in whole.ops if op.role == FORWARD]
    wanted = list(dict.fromkeys(net_results(net) if outputs is None else outputs))
    declared = {var.name: var for var in whole.vars}
    written = {name for op in forward for name in op.output_names()}
    for name in wanted:
        if name not in declared and name not in written:
            raise VariableError(f"{use}: the net has no variable {name!r}{nearest(name, declared)}")
        if name not in written:
            raise VariableError(f"{use}: no forward operator computes {name!r}")
    if not wanted:
        raise VariableError(
            f"{use}: nothing but losses and metrics is computed from the inputs; name the outputs"
        )
    kept = _needed(forward, wanted)
    operators = [Operator(op, index) for index, op in enumerate(kept)]
    externals = _externals(operators)
    inputs = [var for var in whole.vars if var.name in externals and var.kind == INPUT]
    _refuse_carried(forward, operators, declared, externals, use)
    known: dict[str, ArraySpec] = {}
    given = (INPUT, *PERSISTENT)
    for name in {name for op in operators for name in op.input_vars()}:
        var = declared.get(name)
        fits = var is not None and (name in externals or var.kind in given)
        spec = declared_spec(var) if var is not None and fits else None
        if spec is not None:
            known[name] = spec
    specs = infer_specs(operators, known, declared, partial=True)
    for name, var in declared.items():
        spec = declared_spec(var)
        if name not in specs and spec is not None:
            specs[name] = spec
    cut = whole.copy()
    cut.ops = kept
    used = externals | {name for op in kept for name in op.output_names()}
    cut.vars = [var for var in whole.vars if var.name in used or var.view is not None]
    long = [var.name for var in inputs if var.sequence_levels]
    steps = {name: "T" if len(long) == 1 else f"T_{name}" for name in long}
    return Inference(cut, whole, operators, inputs, wanted, specs, steps)


def _lowered(net: OpList, use: str) -> OpList:
    """Plain operators, and those kept whole that the other system has a form of.

    Operators of other packages have none unless they bring it: they become what they stand for.
    """
    system = next((name for name, title in SYSTEMS.items() if title == use), "")
    own = __name__.partition(".")[0]

    def expansion_of(op: OpNode) -> Expansion | None:
        entry = lookup(op.type)
        is_known = entry.module.partition(".")[0] == own or system in entry.forms
        return None if is_known else entry.expand

    out = lower(net, keep_whole=True)
    while any(expansion_of(op) for op in out.ops):
        out = out.copy()
        pairs = [(op, expansion_of(op)) for op in out.ops]
        out.ops = [one for op, expand in pairs for one in (expand(op) if expand else [op])]
        out = lower(out, keep_whole=True)
    return out


def _without_mask(op: Operator, walk: Rewriter) -> list[OpNode] | None:
    """x, in place of x times factors of dropout, which are 1."""
    if op.type != "mul":
        return None
    writers = {name: walk.writer(name) for name in op.input_vars()}
    read = [name for name, writer in writers.items() if writer is None or writer.type != _MASK]
    if len(read) != 1 or len(writers) != 2:
        return None
    return [make_op(COPY_OP, {"x": read}, op.outputs, source=op.node.source)]


def reads_of(op: OpNode) -> list[str]:
    """The variables that an operator reads at inference."""
    skipped = _TRAINING_ONLY.get(op.type, set[str]())
    return [name for slot, names in op.inputs.items() if slot not in skipped for name in names]


def _needed(ops: list[OpNode], wanted: Iterable[str]) -> list[OpNode]:
    needed = set(wanted)
    kept = list[OpNode]()
    for op in reversed(ops):
        if needed.intersection(op.output_names()):
            kept.append(op)
            needed.update(reads_of(op))
    return kept[::-1]


def _externals(operators: Iterable[Operator]) -> set[str]:
    """Variables that are read before anything writes them."""
    names: set[str] = set()
    written: set[str] = set()
    for op in operators:
        names.update(name for name in reads_of(op.node) if name and name not in written)
        written.update(op.output_vars())
    return names


def _refuse_carried(
    forward: list[OpNode],
    kept: list[Operator],
    declared: Mapping[str, VarDecl],
    externals: set[str],
    use: str,
) -> None:
    """Refuse states that go on from run to run: a graph starts anew in each."""
    read = {name for name in externals if name in declared and declared[name].kind in PERSISTENT}
    for number, node in enumerate(forward):
        op = Operator(node, number)
        if op.type in _WRITE_IN_TRAINING:
            continue
        for slot, names in op.outputs.items():
            carried = read.intersection(names)
            if carried and not op.entry.output_slots[slot].intermediate:
                name = min(carried)
                raise ExportError(
                    f"{use}: {op.title()} writes {name!r}, which the outputs read: a state that"
                    " is kept from run to run, while a graph begins without states; feed it as an"
                    " input"
                )


def values_of(
    inference: Inference, arrays: Mapping[str, np.ndarray], use: str = "ONNX"
) -> dict[str, np.ndarray]:
    """The parameters and states that a net in inference form reads.

    Raises:
        VariableError: one has no value.
    """
    given = {var.name for var in inference.inputs}
    values: dict[str, np.ndarray] = {}
    for variable in sorted(_externals(inference.operators) - given):
        if variable not in arrays:
            raise VariableError(
                f"{use}: {variable!r} has no value: give the scope that was trained or loaded, or"
                " run the net once"
            )
        values[variable] = np.asarray(arrays[variable])
    return values
