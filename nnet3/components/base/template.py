"""Operators that are appended to a list many times, with other variables.

A template is checked once; its operators then differ in the names of variables alone, so those that
it makes are known to be right (`OpNode.checked`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from ....framework.ir.messages import attr_value
from ....framework.ir.names import EMPTY, grad_name, state_name
from ....framework.ir.op_list import Checked, OpNode
from ....framework.ir.operation import Operator
from ....framework.ir.registry import AttrSpec, lookup
from .lowered_op import LoweredOp, field_of_indexes
from .lowering import FROZEN, IN_DERIV, MEMORY, OUT, OUT_DERIV, PARAMETER, TEMPORARY, X, is_own

Strings = tuple[str, ...]
"""What a template is filled with: the variables x and out, the prefix of temporaries, the name of
the component, the derivatives of out and x. Those at the end may be missing where the operators
have no use for them."""
_NOTHING, _GIVEN = 0, {X: 1, OUT: 2, OUT_DERIV: 5, IN_DERIV: 6}
_PREFIX, _COMPONENT = 3, 4

_Cuts = tuple[tuple[str, int, int], ...]


@lru_cache(maxsize=1024)
def own_field(symbol: str) -> str:
    """What stands behind the component's name in the name of a variable of its own."""
    kind, slash, name = symbol.partition("/")
    if kind + slash == MEMORY:
        return "/" + state_name(name, "natural_gradient")
    if kind + slash == PARAMETER and name.endswith("@D"):
        return "/" + grad_name(name.removesuffix("@D"))
    return "/" + name


class _Pattern(NamedTuple):
    """One operator of a template.

    Attributes:
        inputs, outputs: slots, and where their variables begin and end among all that the template
            names.
        attrs: as they are given, those aside that stand for indexes.
        checked: what checking it gave; None where each one must be checked by itself.
        indexed: attributes that stand for indexes, or for a field of them where it is not "".
    """

    type: str
    inputs: _Cuts
    outputs: _Cuts
    attrs: dict[str, Any]
    checked: Checked | None
    indexed: tuple[tuple[str, str, AttrSpec], ...]


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
        specs = lookup(op.type).attr_specs
        indexed = tuple(
            [
                (name, field, specs[name])
                for name, value in op.attrs.values.items()
                if (field := field_of_indexes(value)) is not None
            ]
        )
        checked = None
        if not indexed:
            node = op.node(self._role)
            checked = Operator(node).node.checked
        attrs = op.attrs.values
        if indexed:
            stand_ins = {name for name, _, _ in indexed}
            attrs = {name: value for name, value in attrs.items() if name not in stand_ins}
        if checked is not None and not checked.is_whole:
            checked = None
        sides = [self._cut(slots) for slots in (op.inputs, op.outputs)]
        return _Pattern(op.type, sides[0], sides[1], attrs, checked, indexed)

    def _cut(self, slots: Iterable[tuple[str, tuple[str, ...]]]) -> _Cuts:
        cuts = []
        for slot, symbols in slots:
            begin = len(self._uses)
            for symbol in symbols:
                self._uses.append(self._symbols.setdefault(symbol, len(self._symbols)))
            cuts.append((slot, begin, len(self._uses)))
        return tuple(cuts)

    def append(self, ops: list[OpNode], strings: Strings, indexes: Any = None) -> None:
        """Append the operators to a list.

        Args:
            indexes: what attributes stand for.
        """
        base = ("", *strings)
        names = self._pick([base[place] + field for place, field in self._names])
        role = self._role
        for op_type, inputs, outputs, attrs, checked, indexed in self._patterns:
            read = {slot: names[begin:end] for slot, begin, end in inputs}
            written = {slot: names[begin:end] for slot, begin, end in outputs}
            if indexed:
                attrs = dict(attrs)
                for name, field, _ in indexed:
                    attrs[name] = attr_value(getattr(indexes, field) if field else indexes)
            ops.append(OpNode(op_type, read, written, attrs, role, "", None, checked))


def _picker(uses: list[int]) -> Callable[[list[str]], tuple[str, ...]]:
    """A function that takes the names of these numbers out of a list."""
    if len(uses) == 1:
        return tuple
    return itemgetter(*uses) if uses else lambda names: ()


def _name(symbol: str) -> tuple[int, str]:
    """The name of the variable of a symbol: which of the strings, and what follows it."""
    if symbol in _GIVEN:
        return _GIVEN[symbol], ""
    if symbol in (FROZEN, EMPTY):
        return _NOTHING, symbol
    if is_own(symbol):
        return _COMPONENT, own_field(symbol)
    return _PREFIX, f"/{symbol.removeprefix(TEMPORARY)}"
