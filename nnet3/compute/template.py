"""Operators that are made once and appended to a net many times, with other variables.

Protobuf copies a message in a fifth of the time that it takes to make one. So each operator is made
once, and every use writes the names that differ into it and appends a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...framework.desc import OpDesc, make_op
from .lowering import TEMPORARY, Step

_Places = list[tuple[Any, int]]  # lists of a message's strings, and where in them a name stands


class Template:
    """The operators of some steps.

    Args:
        steps: with symbolic names of variables.
        role: of the operators.
        names: the variables that all uses share; None for a symbol that each use names.
    """

    def __init__(self, steps: Iterable[Step], role: int, names: Mapping[str, str | None]) -> None:
        self._ops: list[OpDesc] = []
        places: dict[str, _Places] = {}
        for step in steps:
            sides = step.inputs, step.outputs
            named = [{s: [names[v] or "" for v in given] for s, given in x.items()} for x in sides]
            op = make_op(step.type, *named, step.attrs, role=role)
            self._ops.append(op)
            for slots, side in zip((op.inputs, op.outputs), sides, strict=True):
                for slot, symbols in zip(slots, side.values(), strict=True):
                    for i, symbol in enumerate(symbols):
                        if names[symbol] is None:
                            places.setdefault(symbol, []).append((slot.vars, i))
        self._places = list(places.items())

    def append(self, ops: Any, given: Mapping[str, str], prefix: str = "") -> None:
        """Append the operators to a net's.

        Args:
            ops: the operators of a NetDesc.
            given: the variables of symbols.
            prefix: for the names of those that are not given.
        """
        for symbol, places in self._places:
            name = given.get(symbol)
            if name is None:
                name = f"{prefix}/{symbol.removeprefix(TEMPORARY)}"
            for names, i in places:
                names[i] = name
        for op in self._ops:
            ops.add().CopyFrom(op)
