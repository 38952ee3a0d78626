"""Operators that are made once and appended to a net many times, with other variables.

Protobuf copies a message in a fifth of the time that it takes to make one. So each operator is made
once, and every use writes the names that differ into it and appends a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...framework.desc import set_attr
from ...framework.names import EMPTY
from .lowering import FROZEN, IN_DERIV, OUT, OUT_DERIV, TEMPORARY, X, is_own
from .step import Step, field_of_indexes

_Place = tuple[Any, int, str]  # strings of a message, which of them is a name, and which name
_GIVEN = frozenset({X, OUT, OUT_DERIV, IN_DERIV, FROZEN})


class Template:
    """The operators of some steps.

    Args:
        steps: with symbolic names of variables.
        role: of the operators.
    """

    def __init__(self, steps: Iterable[Step], role: int) -> None:
        self._ops = []
        self._named: list[_Place] = []
        self._temporaries: list[_Place] = []
        self._indexed: list[tuple[Any, str | None]] = []
        for step in steps:
            op = step.message(role)
            self._ops.append(op)
            for slots, side in ((op.inputs, step.inputs), (op.outputs, step.outputs)):
                for slot, (_, symbols) in zip(slots, side, strict=True):
                    names = slot.vars
                    for i, symbol in enumerate(symbols):
                        if symbol in _GIVEN or is_own(symbol):
                            self._named.append((names, i, symbol))
                        elif symbol != EMPTY:
                            end = f"/{symbol.removeprefix(TEMPORARY)}"
                            self._temporaries.append((names, i, end))
            if step.is_indexed:
                fields = [(attr, field_of_indexes(attr)) for attr in op.attrs.values()]
                self._indexed += [pair for pair in fields if pair[1] is not None]

    def set_role(self, role: int) -> None:
        """Change the role of the operators."""
        for op in self._ops:
            op.role = role

    def append(
        self, ops: Any, names: Mapping[str, str], prefix: str = "", indexes: Any = None
    ) -> None:
        """Append the operators to those of a NetDesc.

        Args:
            names: the variables of symbols, but for temporaries.
            prefix: of the names of temporaries.
            indexes: what attributes stand for.
        """
        for listed, i, symbol in self._named:
            listed[i] = names[symbol]
        for listed, i, end in self._temporaries:
            listed[i] = prefix + end
        for attr, field in self._indexed:
            set_attr(attr, getattr(indexes, field) if field else indexes)
        add = ops.add
        for op in self._ops:
            add().CopyFrom(op)
