"""Operators that are appended to a list many times, with other variables.

A template is checked once; its operators then differ in the names of variables alone, so those that
it makes are known to be right (`OpNode.checked`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ....framework.ir.messages import attr_value
from ....framework.ir.names import EMPTY, grad_name, state_name
from ....framework.ir.op_list import Checked, OpNode
from ....framework.ir.operation import Operator
from ....framework.ir.registry import AttrSpec, lookup
from .lowered_op import LoweredOp, field_of_indexes
from .lowering import FROZEN, IN_DERIV, MEMORY, OUT, OUT_DERIV, PARAMETER, TEMPORARY, X, is_own

Strings = tuple[str, ...]
"""Names that fill a template: the variables x and out, the prefix of temporaries, the component,
the derivatives of out and x. The last ones may be left out where the operators do not use them."""
_NOTHING = 0
_GIVEN = {X: 1, OUT: 2, OUT_DERIV: 5, IN_DERIV: 6}
_PREFIX, _COMPONENT = 3, 4

_Cuts = tuple[tuple[str, slice], ...]


@lru_cache(maxsize=1024)
def own_field(symbol: str) -> str:
    """The suffix after the component's name in the name of a variable of its own."""
    kind, slash, name = symbol.partition("/")
    if kind + slash == MEMORY:
        return "/" + state_name(name, "natural_gradient")
    if kind + slash == PARAMETER and name.endswith("@D"):
        return "/" + grad_name(name.removesuffix("@D"))
    return "/" + name


class _Indexed:
    """Attributes of an operator that stand for the indexes of each use.

    Args:
        wanted: their names, and the field of the indexes that each stands for, "" for all of them.
        specs: the attributes' declarations.
    """

    def __init__(self, wanted: list[tuple[str, str]], specs: Mapping[str, AttrSpec]) -> None:
        self._wanted = [(name, field, specs[name]) for name, field in wanted]
        self.names = frozenset(name for name, _ in wanted)
        self._first: Checked | None = None  # of the first operator, which is checked in full

    def complete(self, node: OpNode, indexes: Any) -> OpNode:
        """The operator with the attributes that it lacks."""
        node.attrs = filled = dict(node.attrs)
        for name, field, _ in self._wanted:
            filled[name] = attr_value(getattr(indexes, field) if field else indexes)
        first = self._first
        if first is None or not first.is_whole:
            self._first = Operator(node).node.checked
            return node
        attrs = dict(first.attrs)
        for name, _, spec in self._wanted:
            value = filled[name]
            if type(value) is np.ndarray and spec.is_free and spec.type == "tensor":
                attrs[name] = value  # as the check would give it
            else:
                attrs[name] = spec.check(value, node.type)
        node.checked = first._replace(attrs=attrs)
        return node


class _Pattern(NamedTuple):
    """One operator of a template.

    Attributes:
        inputs, outputs: slots, and where their variables begin and end among all that the template
            names.
        attrs: the attributes, but for placeholders of indexes.
        checked: the result of the check; None where each use must be checked by itself.
        indexed: attributes that stand for indexes; None where there are none.
    """

    type: str
    inputs: _Cuts
    outputs: _Cuts
    attrs: dict[str, Any]
    checked: Checked | None
    indexed: _Indexed | None


class Template:
    """Lowered operators with places for the names of their variables.

    Args:
        lowered: with symbolic names of variables.
        role: of the operators.

    Raises:
        OpscopeError: one of them is wrong.
    """

    def __init__(self, lowered: Iterable[LoweredOp], role: int) -> None:
        self._role = role
        self._symbols: dict[str, int] = {}  # each once, and its number
        self._uses: list[int] = []  # numbers of symbols, slot by slot
        self._patterns = [self._pattern(op) for op in lowered]
        self._names = [_name(symbol) for symbol in self._symbols]
        self._pick = _picker(self._uses)

    def _pattern(self, op: LoweredOp) -> _Pattern:
        attrs = op.attrs.values
        checked = None
        indexed = None
        fields = [(name, field_of_indexes(value)) for name, value in attrs.items()]
        wanted = [(name, field) for name, field in fields if field is not None]
        if wanted:
            indexed = _Indexed(wanted, lookup(op.type).attr_specs)
            attrs = {name: value for name, value in attrs.items() if name not in indexed.names}
        else:
            checked = Operator(op.node(self._role)).node.checked
            if checked is not None and not checked.is_whole:
                checked = None
        inputs, outputs = self._cut(op.inputs), self._cut(op.outputs)
        return _Pattern(op.type, inputs, outputs, attrs, checked, indexed)

    def _cut(self, slots: Iterable[tuple[str, tuple[str, ...]]]) -> _Cuts:
        cuts = []
        for slot, symbols in slots:
            begin = len(self._uses)
            for symbol in symbols:
                self._uses.append(self._symbols.setdefault(symbol, len(self._symbols)))
            cuts.append((slot, slice(begin, len(self._uses))))
        return tuple(cuts)

    def append(self, ops: list[OpNode], strings: Strings, indexes: Any = None) -> None:
        """Append the operators to a list.

        Args:
            indexes: the precomputed indexes that replace placeholders in attributes.
        """
        base = ("", *strings)
        names = self._pick([base[place] + field for place, field in self._names])
        role = self._role
        for op_type, inputs, outputs, attrs, checked, indexed in self._patterns:
            read: dict[str, tuple[str, ...]] = {}  # loops, as this is done for each operator
            for slot, which in inputs:
                read[slot] = names[which]
            written: dict[str, tuple[str, ...]] = {}
            for slot, which in outputs:
                written[slot] = names[which]
            node = OpNode(op_type, read, written, attrs, role, "", None, checked)
            ops.append(node if indexed is None else indexed.complete(node, indexes))


def _picker(uses: list[int]) -> Callable[[list[str]], tuple[str, ...]]:
    """A function that takes the names of these numbers out of a list."""
    if len(uses) == 1:
        return tuple
    return itemgetter(*uses) if uses else lambda names: ()


def _name(symbol: str) -> tuple[int, str]:
    """The variable of a symbol: the number of a string in `Strings`, and the suffix after it."""
    if symbol in _GIVEN:
        return _GIVEN[symbol], ""
    if symbol in (FROZEN, EMPTY):
        return _NOTHING, symbol
    if is_own(symbol):
        return _COMPONENT, own_field(symbol)
    return _PREFIX, f"/{symbol.removeprefix(TEMPORARY)}"
