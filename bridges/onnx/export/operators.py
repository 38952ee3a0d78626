"""Operators as nodes: by an emitter, by the name that ONNX has, or from a scalar expression."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ....framework.fusion.scalars.expression import ExpressionError
from ....framework.ir.operation import Operator
from ....operators.names import Name, names_of
from ...inference.reading import RefusedError
from ...inference.refusals import OF_MODULES, OF_TRAINING, reason_of
from .emission import EMITTERS, REFUSALS, Emission, Values
from .expressions import print_expressions


def emit_operators(values: Values, operators: Iterable[Operator]) -> None:
    """Emit operators in their order; what cannot be exported is noted in `values.refused`."""
    for op in operators:
        outputs = set(op.output_vars())
        values.writers.update(dict.fromkeys(outputs, op))
        if any(name in values.broken for name in op.input_vars()):
            values.broken |= outputs
            continue
        try:
            _emit(Emission(values, op))
        except RefusedError as error:
            values.broken |= outputs
            if str(error):
                names = ", ".join(map(repr, op.output_vars()))
                values.refused.append(f"{op.title()}, which makes {names}: {error}")


def _emit(e: Emission) -> None:
    op = e.op
    emit = EMITTERS.get(op.type) or op.entry.forms.get("onnx")
    name = names_of(op.type).get("onnx")
    if emit is not None:
        emit(e)
    elif name is not None and _is_meant(e, name):
        e.set("out", _named(e, name))
    elif op.entry.expressions and not (why := reason_of(op.type, op.entry, OF_TRAINING)):
        try:
            print_expressions(e)
        except ExpressionError as error:
            raise RefusedError(str(error)) from None
    else:
        why = reason_of(op.type, op.entry, REFUSALS | OF_TRAINING | OF_MODULES)
        raise RefusedError(why or "there is no form of it in ONNX here")


def _is_meant(e: Emission, name: Name) -> bool:
    """Whether the operator of ONNX computes this one, with its attributes and dtypes."""
    booleans = any(e.dtype(slot) == np.bool_ for slot in e.op.inputs)
    plain = not (booleans and e.op.entry.expressions)
    return plain and e.graph.opset >= name.since and name.means(e.attrs)


def _named(e: Emission, name: Name) -> str:
    attrs = {theirs: e.attrs[ours] for theirs, ours in name.attrs.items()}
    slots = [slot for slot in e.op.entry.input_slots if e.has(slot)]
    return e.node(name.name, *(e[slot] for slot in slots), **name.fixed, **attrs)
