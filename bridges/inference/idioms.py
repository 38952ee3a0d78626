"""Scalar expressions of operators as idioms: what another system has one operator for."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from ...framework.fusion.scalars.array_idioms import Idiom, folded
from ...framework.fusion.scalars.expression import Tree, names, nodes, parse, parts
from ...framework.fusion.scalars.pointwise import with_numbers
from ...framework.ir.registry import lookup
from ...operators.names import table

OURS: Final = "@"
"""Begins the names of our operators where an expression calls them."""


@functools.cache
def forms_in(system: str, opset: int = 0) -> tuple[Idiom, ...]:
    """The scalar expressions of operators that a system has, for calls of these.

    `1 / (1 + exp(-x))` is @sigmoid(x), and `x > 0 ? x : alpha * x` with a number for alpha is
    @leaky_relu(x, alpha): slots come first, then the attributes that the system's name has.

    Args:
        opset: of ONNX.
    """
    idioms = list[Idiom]()
    for op_type, row in table().items():
        entry = lookup(op_type)
        name = row.get(system)
        if name is None or not name.is_plain or name.since > opset or not entry.expressions:
            continue
        (text,) = entry.expressions.values()
        given = list(name.attrs.values())
        others = {spec.name: spec.default for spec in entry.attrs if spec.name not in given}
        form = with_numbers(parse(text), others)
        if _is_telling(form):
            variables = [("var", word) for word in (*entry.input_slots, *given)]
            call = ("call", OURS + op_type, *variables)
            forms = dict.fromkeys((form, folded(form)))
            idioms += [Idiom(one, call, _reads_variables, given) for one in forms]
    return tuple(sorted(idioms, key=lambda one: -len(list(nodes(one.form)))))


def _is_telling(form: Tree) -> bool:
    """Whether a form is more than one sign of the grammar, and more than signs and numbers."""
    if all(part[0] == "var" for part in parts(form)):
        return form[0] == "call"
    return any(node[0] in ("call", "choose") for node in nodes(form))


def _reads_variables(binding: Mapping[str, Tree]) -> bool:
    return any(map(names, binding.values()))
