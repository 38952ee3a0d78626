"""The table of edits that nets of operators carry out, and the simple ones.

Nodes are operators, called as the first variable that they write; names may mean any variable.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...framework.base.errors import AttributeTypeError, ShapeError, VariableError
from ...framework.editing import operations as edits
from ...framework.editing.low_rank import checked, cut
from ...framework.editing.operations import Edit, Performers, perform_by
from ...framework.editing.patterns import matching, renamed_pairs
from ...framework.ir.desc import make_op
from ...framework.ir.op_list import OpNode
from . import op_structure
from .op_net import OpNet, with_inputs


def perform(net: OpNet, edit: Edit) -> str:
    """Carry out an edit; what was done, in one sentence.

    Args:
        net: is changed, also where an error comes later: edit a copy.

    Raises:
        VariableError: nets of operators cannot do it.
        OpscopeError: it does not fit the net.
    """
    if type(edit) in _TABLE and type(edit) not in (edits.Rename, edits.SetValue):
        net.drop_training()
    return perform_by(_TABLE, _REASONS, net, edit)


def _rename(net: OpNet, edit: edits.Rename) -> str:
    """Variables get other names, and so does what is named after them: `w@GRAD`, states, copies."""
    pairs = renamed_pairs(net.names(), edit.old, edit.new, "variable")
    names = dict(pairs)
    known = set(net.names())
    for name in known - names.keys():
        own, mark, rest = name.partition("@")
        if mark and own in names:
            names[name] = f"{names[own]}@{rest}"
    inner = {name for op in net.net.ops for _, one in op.inner_nets() for name in _mentioned(one)}
    for old, new in names.items():
        if not new or (new in known and new not in names):
            raise VariableError(f"there is a variable {new!r} already" if new else "an empty name")
        if old in inner:
            raise VariableError(
                f"{old!r} is also a name inside of a step net, which reads it by it"
            )
    if len({names.get(name, name) for name in known}) < len(known):
        raise VariableError(f"{edit.old!r} to {edit.new!r} gives two variables one name")
    net.net.ops = [op.renamed(names) for op in net.net.ops]
    net.net.vars = [
        var.changed(
            name=names.get(var.name, var.name),
            initializer=None if var.initializer is None else var.initializer.renamed(names),
            view=None
            if var.view is None
            else var.view._replace(base=names.get(var.view.base, var.view.base)),
        )
        for var in net.net.vars
    ]
    net.arrays = {names.get(name, name): array for name, array in net.arrays.items()}
    return f"Renamed {len(pairs)} variables {edit.old} to {edit.new}."


def _mentioned(net: object) -> set[str]:
    ops: list[OpNode] = getattr(net, "ops", [])
    own = {var.name for var in getattr(net, "vars", [])}
    return {name for op in ops for name in (*op.input_names(), *op.output_names())} - own


def _parameters(net: OpNet, names: tuple[str, ...]) -> list[str]:
    return matching(net.parameters(), names, "parameter")


def _freeze(net: OpNet, edit: edits.Freeze) -> str:
    return _set_trained(net, edit.names, False)


def _unfreeze(net: OpNet, edit: edits.Unfreeze) -> str:
    report = _set_trained(net, edit.names, True)
    for name in _parameters(net, edit.names):
        if net.var(name).lr_factor == 0:
            net.declare(net.var(name).changed(lr_factor=None))
    return report


def _set_trained(net: OpNet, names: tuple[str, ...], trained: bool) -> str:
    parameters = _parameters(net, names)
    for name in parameters:
        net.declare(net.var(name).changed(stop_gradient=not trained))
    return f"{'Unfroze' if trained else 'Froze'} {len(parameters)} parameters."


def _set_factor(net: OpNet, edit: edits.SetFactor) -> str:
    if edit.below:
        raise VariableError("rates below a node are for CNTK's networks; name parameters here")
    if edit.factor < 0:
        raise AttributeTypeError(f"factor={edit.factor:g} is negative")
    parameters = _parameters(net, edit.names)
    for name in parameters:
        net.declare(net.var(name).changed(lr_factor=float(edit.factor)))
    return f"Set factors of learning rates to {edit.factor:g} for {len(parameters)} parameters."


def _set_dropout(net: OpNet, edit: edits.SetDropout) -> str:
    if not 0 <= edit.proportion <= 1:
        raise AttributeTypeError(f"proportion={edit.proportion:g} must be from 0 to 1")
    dropouts = matching(
        [op.output_names()[0] for op in net.net.ops if op.type == "dropout"],
        edit.names,
        "result of dropout",
    )
    for name in dropouts:
        number = net.writer(name)
        op = net.net.ops[number]
        net.net.ops[number] = op.changed(attrs={**op.attrs, "p": float(edit.proportion)})
    return f"Set dropout proportions for {len(dropouts)} operators."


def _low_rank(net: OpNet, edit: edits.LowRank) -> str:
    """W becomes W_a and W_b; layers multiply with one after the other, other readers read their
    product."""
    done = []
    for name in _parameters(net, checked(edit).names):
        value = net.arrays.get(name)
        factored = cut(edit, value) if value is not None and value.ndim == 2 else None
        if value is None or factored is None:
            continue
        parts, rank = factored
        if edit.factors:
            left, right = (part.astype(value.dtype) for part in parts.factors(rank))
            _put_product(net, name, left, right)
        else:
            net.arrays[name] = np.ascontiguousarray(parts.nearest(rank).astype(value.dtype))
        done.append(f"{name} to rank {rank}")
    if not done and edit.must_match:
        raise VariableError(f"none of {', '.join(edit.names)} is a matrix that this makes smaller")
    net.settle()
    return f"Decomposed {len(done)} parameters: {', '.join(done)}."


def _put_product(net: OpNet, name: str, left: np.ndarray, right: np.ndarray) -> None:
    """Put two factors in the place of a parameter [rows, columns]."""
    old = net.var(name)
    first = net.parameter(f"{name}_a", left, old)
    second = net.parameter(f"{name}_b", right, old)
    readers = net.readers(name)
    for number in reversed(readers):
        op = net.net.ops[number]
        slot = {"affine": "w", "matmul": "y"}.get(op.type, "")
        whole = op.attrs.get("num_flatten_dims", -1) == -1 and not op.attrs.get("transpose_y")
        given = op.inputs.get("x", ())
        if not slot or op.inputs.get(slot) != (name,) or len(given) != 1 or name in given:
            break
        if not whole or not op.output_names():
            break
    else:
        for number in reversed(readers):
            op = net.net.ops[number]
            inner = f"{op.output_names()[0]}_svd"
            turned = {"transpose_x": op.attrs["transpose_x"]} if "transpose_x" in op.attrs else {}
            inner_op = make_op("matmul", {"x": op.inputs["x"], "y": first}, {"out": inner}, turned)
            attrs = {k: v for k, v in op.attrs.items() if k != "transpose_x"}
            outer = with_inputs(op, {name: second, op.inputs["x"][0]: inner}).changed(attrs=attrs)
            net.net.ops[number : number + 1] = [inner_op.changed(source=op.source), outer]
        net.drop_unused()
        return
    product = f"{name}_svd"
    product_op = make_op("matmul", {"x": first, "y": second}, {"out": product})
    net.net.ops = [product_op, *(with_inputs(op, {name: product}) for op in net.net.ops)]
    net.drop_unused()


def _set_value(net: OpNet, edit: edits.SetValue) -> str:
    var = net.var(edit.name)
    old = net.arrays.get(edit.name)
    if old is None:
        raise VariableError(f"{edit.name!r} is no parameter or state with numbers")
    if old.shape != edit.value.shape:
        raise ShapeError(f"{edit.name!r} is {list(old.shape)}, not {list(edit.value.shape)}")
    net.arrays[var.name] = np.array(edit.value, old.dtype, order="C")
    return f"Set {old.size} numbers of {edit.name}."


_TABLE: Final[Performers] = {
    edits.Rename: _rename,
    edits.Remove: op_structure.remove,
    edits.RemoveOrphans: op_structure.remove_orphans,
    edits.Replace: op_structure.replace,
    edits.Insert: op_structure.insert,
    edits.Connect: op_structure.connect,
    edits.Cut: op_structure.cut,
    edits.NewOutput: op_structure.new_output,
    edits.Freeze: _freeze,
    edits.Unfreeze: _unfreeze,
    edits.SetFactor: _set_factor,
    edits.SetDropout: _set_dropout,
    edits.LowRank: _low_rank,
    edits.SetValue: _set_value,
}
_REASONS: Final = {
    edits.SetRate: "its optimizer holds the rate (lr=...); parameters hold their factors alone",
    edits.SetRole: "its variables have no roles; see cut",
    edits.SetProperty: "it is a property of CNTK's nodes",
    edits.Copy: "copies of nodes are for CNTK's networks; insert makes new ones here",
}
