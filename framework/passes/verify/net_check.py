"""A net under examination: what it declares, who writes what, and what was found wrong.

The rules are functions of a `NetCheck`; `verifier.py` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...base.errors import (
    AttributeTypeError,
    CycleError,
    DeviceError,
    FormatError,
    GradientError,
    OpscopeError,
    ShapeError,
    SlotError,
    UnknownOperatorError,
    VariableError,
)
from ...ir.desc import (
    INPUT,
    PARAMETER,
    STATE,
    TEMPORARY,
    format_location,
)
from ...ir.op_list import OpList
from ...ir.operation import Operator

ERROR, WARNING = "error", "warning"

KINDS: dict[str, type[OpscopeError]] = {
    "unknown-operator": UnknownOperatorError,
    "slot": SlotError,
    "attribute": AttributeTypeError,
    "device": DeviceError,
    "declaration": FormatError,  # a variable with values that no net has
    "undefined": VariableError,  # nothing gives it a value
    "order": VariableError,  # read before it is written
    "cycle": CycleError,
    "doubly-defined": VariableError,
    "unused": VariableError,  # a warning
    "shape": ShapeError,
    "view": ShapeError,
    "role": GradientError,
    "steps": FormatError,
}
"""Every kind of problem with the exception that `verify` raises for it."""

_GIVEN = frozenset({INPUT, PARAMETER, STATE})  # kinds that hold a value before the first operator


@dataclass(frozen=True)
class Problem:
    """One finding.

    Attributes:
        severity: "error" or "warning". kind: a key of `KINDS`.
        message: one sentence that names operator, variables, shapes and source line.
        op: index of the operator in the outermost net; -1 where no single one is meant.
    """

    severity: str
    kind: str
    message: str
    op: int = -1


@dataclass
class NetCheck:
    """One net, seen by all rules in turn.

    Attributes:
        desc: the net.
        rules: checks to apply to it, and to the nets inside of it.
        given: variables that have a value before the first operator runs (links of a step net).
        outer: variables of the nets around it, which a nested net may read.
        wanted: results that somebody outside takes.
        problems: what the rules found.
        vars: declared variables by name. ops: the operators.
        root: what a view is a view of, by the name of the view.
        writers: numbers of the operators that write a variable, or a view of it.
        operators: those that could be decoded, by their numbers.
        unsound: views that are no rectangle of their base.
    """

    desc: OpList
    rules: Sequence[Callable[[NetCheck], None]]
    given: frozenset[str] = frozenset()
    outer: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    problems: list[Problem] = field(default_factory=list)

    def run(self) -> list[Problem]:
        """All that the rules find."""
        self.vars = {var.name: var for var in self.desc.vars}
        self.ops = list(self.desc.ops)
        self.root = {v.name: v.view.base for v in self.desc.vars if v.view is not None}
        self.operators: dict[int, Operator] = {}
        self.unsound: set[str] = set()
        self._number_writers()
        for rule in self.rules:
            rule(self)
        return self.problems

    def inside(
        self,
        net: OpList,
        title: str,
        op: int,
        given: frozenset[str],
        outer: frozenset[str],
        wanted: frozenset[str],
    ) -> None:
        """Examine a net inside of this one; its problems are added to this one's, under `title`."""
        for one in NetCheck(net, self.rules, given, outer, wanted).run():
            self.add(one.kind, f"{title}: {one.message}", op, one.severity)

    def add(self, kind: str, message: str, op: int = -1, severity: str = ERROR) -> None:
        """Note a problem; see `Problem`."""
        self.problems.append(Problem(severity, kind, message, op))

    def title(self, index: int) -> str:
        """An operator for messages: number, type and place in the source."""
        where = format_location(self.ops[index].source)
        name = f"op {index} ({self.ops[index].type})"
        return f"{name} at {where}" if where else name

    def kind_of(self, name: str) -> int:
        """The kind of a variable; TEMPORARY where it is not declared."""
        var = self.vars.get(name)
        return TEMPORARY if var is None else var.kind

    def base(self, name: str) -> str:
        """The base of a view; of another variable, itself."""
        return self.root.get(name, name)

    def reads(self, index: int) -> list[str]:
        """The variables that an operator reads, with bases in place of views."""
        return [self.base(name) for name in self.ops[index].input_names()]

    def writes(self, index: int) -> list[str]:
        """The variables that an operator writes, with bases in place of views."""
        return [self.base(name) for name in self.ops[index].output_names()]

    def _number_writers(self) -> None:
        self.writers: dict[str, list[int]] = {}
        for index in range(len(self.ops)):
            for name in dict.fromkeys(self.writes(index)):
                self.writers.setdefault(name, []).append(index)
        self._linked_out = {link.outer for step in self.desc.steps for link in step.out_links}

    def has_value(self, name: str) -> bool:
        """Whether a variable holds something before the first operator."""
        if name in self.given or name in self._linked_out or self.kind_of(name) in _GIVEN:
            return True
        # What the inner net writes itself hides the variable outside, before the write as well.
        return name in self.outer and name not in self.writers
