"""The numbers of calls without a name: `Times` in `Plus(Times(W, x), b)` is `unnamed7`, say.

CNTK counts while it parses: every call (also one that gets a name later), every number and every
array among the parameters; and the body of a macro once more for each call of it, except for the
calls of its statements, which keep their names. Source: NetworkDescriptionLanguage.h.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .macros import DEEPEST, Macros
from .syntax import Array, Call, Expression, Macro, Script

DEEPEST_CALL = 120  # calls inside one another, those in bodies of macros included


@dataclass(eq=False)
class Numbers:
    """Numbers of the calls of one scope, and for each call of a macro where its body starts.

    Numbers of a macro count from 0; numbers of a scope are absolute.
    """

    calls: dict[Call, int] = field(default_factory=dict)
    bodies: dict[Call, tuple[int, Numbers]] = field(default_factory=dict)
    size: int = 0

    def moved(self, start: int) -> Numbers:
        """The same numbers after `start`."""
        return Numbers(
            {call: start + number for call, number in self.calls.items()},
            {call: (start + number, body) for call, (number, body) in self.bodies.items()},
            start + self.size,
        )


class Numbering:
    """Counts through scripts in the order of their text.

    Attributes:
        root: the numbers of the scripts themselves, definitions of macros included.
    """

    def __init__(self, macros: Macros) -> None:
        self._macros = macros
        self._bodies: dict[Macro, Numbers] = {}
        self._open: list[Macro] = []
        self._depth = 0
        self.root = Numbers()

    def script(self, script: Script) -> None:
        """Count a script: its statements and the definitions of macros in it, which must be known
        already."""
        for statement in script:
            if isinstance(statement, Macro):
                self._define(statement)
            else:
                self._expression(statement.value, self.root, False)

    def number(self, call: Call, scope: Numbers) -> int:
        """The number of a call in a scope.

        A statement without a name, in a macro of one line, has the number of the definition; a
        call that CNTK would not have counted gets a new number.
        """
        for numbers in (scope, self.root):
            if call in numbers.calls:
                return numbers.calls[call]
        return self.next()

    def next(self) -> int:
        """A new number."""
        self.root.size += 1
        return self.root.size

    def of_body(self, scope: Numbers, call: Call) -> Numbers:
        """The numbers inside a call of a macro in a scope."""
        if call not in scope.bodies:
            return Numbers()
        start, body = scope.bodies[call]
        return body.moved(start)

    def _define(self, macro: Macro) -> None:
        for statement in macro.body:
            if isinstance(statement, Macro):
                self._define(statement)
            else:
                self._expression(statement.value, self.root, True)

    def _body(self, macro: Macro) -> Numbers:
        """The numbers of a macro's body, counted from 0."""
        if macro in self._bodies:
            return self._bodies[macro]
        numbers = Numbers()
        if macro in self._open or len(self._open) >= DEEPEST:
            return numbers  # the evaluation will tell
        self._open.append(macro)
        for assignment in macro.body.assignments:
            call = assignment.value
            if isinstance(call, Call):
                self._enter(call, numbers)
                self._parameters(call.parameters, numbers, False)
        self._open.pop()
        self._bodies[macro] = numbers
        return numbers

    def _enter(self, call: Call, numbers: Numbers) -> None:
        macro = self._macros.find(call.function.string)
        if macro is not None:
            body = self._body(macro)
            numbers.bodies[call] = (numbers.size, body)
            numbers.size += body.size

    def _parameters(
        self, parameters: tuple[Expression, ...], numbers: Numbers, defining: bool
    ) -> None:
        if self._depth >= 2 * DEEPEST_CALL:
            return  # the evaluation will tell
        self._depth += 1
        for parameter in parameters:
            self._expression(parameter, numbers, defining)
        self._depth -= 1

    def _expression(self, expression: Expression, numbers: Numbers, defining: bool) -> None:
        if isinstance(expression, Call):
            numbers.size += 1
            numbers.calls[expression] = numbers.size
            if not defining:
                self._enter(expression, numbers)
            self._parameters(expression.parameters, numbers, defining)
        elif isinstance(expression, Array):
            numbers.size += 1
            self._parameters(expression.items, numbers, defining)
        elif expression.number is not None:
            numbers.size += 1
