"""The values of BrainScript expressions, lazy until they are needed, and the session they share.

Numbers are floats, strings str, booleans bool; `cntk.network` has nodes and networks, and the
other kinds of values are here. A value is computed when it is first needed: until then a record
member, an argument or an array element is a `Thunk`. A thunk that needs its own value is a circular
definition.

Source: ScriptableObjects.h (ConfigValuePtr, ConfigRecord, ConfigArray, ConfigLambda).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ...framework.base.errors import nearest
from ...framework.base.untrusted.limits import limit
from ..base.text import Location
from ..network.network import Network
from ..network.nodes.node import Node
from .failures import Failure, LimitFailure, Where, refuse_beyond
from .language.depth import MAX_DEPTH
from .language.syntax import Expression, LibrarySource, Member

log = logging.getLogger("opscope.cntk")

Value = Any
# The path that names the value of an expression, innermost piece first: ((None, ".z"), "[2]") is
# `z[2]`. As pairs, paths cost nothing where no node is named; None is the empty path.
Path = tuple[Any, str] | None
# A compiled expression: (scope for its names, path of its value) -> its value.
Code = Callable[["Record", Path], Value]
# The constructor of a runtime class: (its record, the path of the object, the `new`) -> the object.
Constructor = Callable[["Record", Path, Expression], Value]


def path_text(path: Path) -> str:
    """A path as the name of a node: `layers[0].W`."""
    pieces = []
    while path is not None:
        path, piece = path
        pieces.append(piece)
    return "".join(reversed(pieces)).removeprefix(".")


class Thunk:
    """A value that is computed by `code` in `scope` when it is first needed.

    `expression` is its text, `path` names the nodes made by it. `needed_by` is, while it is
    computed, the innermost thunk of the user's own text that waits for it.
    """

    __slots__ = ("code", "expression", "needed_by", "path", "running", "scope", "value")

    def __init__(self, code: Code, scope: Record, path: Path, expression: Expression | Member):
        self.code = code
        self.scope = scope
        self.path = path
        self.expression = expression
        self.running = False
        self.needed_by: Thunk | None = None
        self.value = Thunk  # the class itself means "not computed yet"

    def force(self) -> Value:
        """The value, computed now if it has not been."""
        if self.value is not Thunk:
            return self.value
        waiting = self.scope.session.waiting
        if self.running:
            raise _circular(self, waiting)
        if len(waiting) >= MAX_DEPTH:
            raise LimitFailure(f"more than {MAX_DEPTH} values need each other", self.expression)
        self.running = True
        if self.expression.source.__class__ is not LibrarySource:
            self.needed_by = self
        elif waiting:
            self.needed_by = waiting[-1].needed_by
        waiting.append(self)
        try:
            value = self.code(self.scope, self.path)
        finally:
            self.running = False
            waiting.pop()
        self.value = value
        return value


def _circular(thunk: Thunk, waiting: list[Thunk]) -> Failure:
    cycle = waiting[waiting.index(thunk) :]
    names = [path_text(t.path) for t in (*cycle[:4], *cycle[4:][-3:], thunk)]
    if len(cycle) > 7:
        names.insert(4, "...")
    chain = [(f"needs {path_text(t.path)}, computed at", t.expression.location) for t in cycle]
    return Failure(
        f"circular reference: the value is needed to compute itself ({' -> '.join(names)})",
        thunk.expression,
        chain=chain,
    )


def force(value: Value) -> Value:
    """The value of a thunk; any other value as it is."""
    return value.force() if value.__class__ is Thunk else value


class Record:
    """Members by name, and the scope around, where names are looked up that it lacks.

    `pending` holds its changes `a.b = x` of a member `a` that it does not have, for the record that
    it will be added to; `owner` is the class of the object that it defines.
    """

    __slots__ = ("expression", "members", "owner", "parent", "pending", "session")

    def __init__(
        self,
        session: Session,
        parent: Record | None,
        expression: Expression | Member | None = None,
        members: dict[str, Value] | None = None,
    ):
        self.session = session
        self.parent = parent
        self.expression = expression
        self.members: dict[str, Value] = {} if members is None else members
        self.pending: tuple[tuple[tuple[str, ...], Thunk], ...] = ()
        self.owner = ""

    def find(self, name: str, default: Value = None) -> Value:
        """The value of a name here or in the scopes around."""
        record: Record | None = self
        while record is not None:
            value = record.members.get(name, Thunk)
            if value is not Thunk:
                return value.force() if value.__class__ is Thunk else value
            record = record.parent
        return default

    def own(self, name: str, default: Value = None) -> Value:
        """The value of a member, without the scopes around."""
        return force(self.members.get(name, default))

    def get(self, name: str) -> Value:
        """The value of a name that must be there."""
        value = self.find(name, Thunk)
        if value is Thunk:
            raise Failure(f"required parameter {name!r} not found", self.expression)
        return value

    def place(self, name: str) -> Location | None:
        """Where the value of a name was written, or else the record."""
        record: Record | None = self
        while record is not None:
            value = record.members.get(name)
            if value is not None:
                if value.__class__ is Thunk:
                    return value.expression.location
                break
            record = record.parent
        return self.expression.location if self.expression is not None else None

    def visible(self) -> set[str]:
        """All names that can be looked up from here."""
        names: set[str] = set()
        record: Record | None = self
        while record is not None:
            names.update(record.members)
            record = record.parent
        return names


@dataclass(frozen=True)
class RuntimeType:
    """A class that `new` can make.

    With `names_inside_start_anew`, paths inside its record do not begin with the object's own path:
    so it is for classes whose members can be reached with a dot.
    """

    construct: Constructor
    names_inside_start_anew: bool = False


@dataclass
class Session:
    """One evaluation.

    Attributes:
        types: the classes that `new` knows.
        load_model: reads the model file of a name for `BS.Network.Load`.
        seeds: gives the seeds of random initial values, in the order in which parameters are made;
            CNTK has one counter for all networks of a process.
        say: takes the lines of `Print` and `Debug`.
        warn: takes warnings.
        redesigned: whether the text is of the redesigned language: `:` joins arrays as well as
            elements, and a call with too few arguments gives a function of the others.
        watched: all records of the user's text that were evaluated, where somebody wants to know
            which members nothing reads.
        steps: of the evaluation so far, `most_steps` of them at most.
    """

    types: Mapping[str, RuntimeType]
    load_model: Callable[[str], Network] | None = None
    say: Callable[[str], None] = log.info
    warn: Callable[[str], None] = log.warning
    seeds: Iterator[int] = field(default_factory=lambda: count(1))
    redesigned: bool = False
    watched: list[Record] | None = None
    steps: int = 0
    most_steps: int = field(default_factory=lambda: limit("steps"))
    depth: int = 0
    waiting: list[Thunk] = field(default_factory=list)
    # Delay nodes whose inputs are not attached yet, with the record that names them.
    late: MutableMapping[Node, tuple[Record, Expression]] = field(default_factory=dict)

    def spend(self, steps: int, where: Where) -> None:
        """Count steps of the evaluation: texts are short that ask for work without end.

        Raises:
            LimitFailure: there are more of them than the limit `steps`.
        """
        self.steps += steps
        if self.steps > self.most_steps:
            refuse_beyond("steps", self.steps, "the evaluation", where)

    def watch(self, record: Record) -> None:
        """Keep a record in `watched`, if that is wanted."""
        if self.watched is not None:
            self.watched.append(record)


class Array:
    """Elements, some not computed yet, counted from `first`."""

    __slots__ = ("first", "items")

    def __init__(self, items: list[Value], first: int = 0):
        self.items = items
        self.first = first

    def __len__(self) -> int:
        return len(self.items)

    def at(self, index: int, where: Expression) -> Value:
        """The element at `index`."""
        offset = index - self.first
        if not 0 <= offset < len(self):
            raise Failure(
                f"Index {index} out of bounds [{self.first}..{self.first + len(self) - 1}]", where
            )
        return force(self.element(offset))

    def element(self, offset: int) -> Value:
        """The element that so many others stand before, perhaps not computed yet."""
        return self.items[offset]


class Counted(Array):
    """`array [first .. last] (function)`: elements are made when they are asked for, so that a long
    array costs nothing by itself."""

    __slots__ = ("_all", "_made", "_make", "_size")

    def __init__(self, first: int, size: int, make: Callable[[int], Thunk]):
        self.first = first
        self._size = size
        self._make = make
        self._made: dict[int, Thunk] = {}
        self._all: list[Value] | None = None

    @property
    def items(self) -> list[Value]:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self._all is None:
            self._all = [self.element(offset) for offset in range(self._size)]
        return self._all

    def __len__(self) -> int:
        return self._size

    def element(self, offset: int) -> Value:
        thunk = self._made.get(offset)
        if thunk is None:
            thunk = self._made[offset] = self._make(self.first + offset)
        return thunk


class Joined(Array):
    """`a : b` of the redesigned language: elements, and elements of arrays, in one array.

    Which of the parts are arrays shows when they are computed: one after the other, as far as an
    index needs them. The parts of joined arrays among them are walked with a list: functions that
    call themselves join thousands.
    """

    __slots__ = ("_found", "_inside", "_open", "_parts")

    def __init__(self, parts: list[Thunk]):
        self.first = 0
        self._parts = parts
        self._found: list[Value] = []
        self._open = [(parts, 0)]  # lists of parts, and how many of each are in `_found`
        self._inside = {id(parts)}

    @property
    def items(self) -> list[Value]:  # pyright: ignore[reportIncompatibleVariableOverride]
        while self._open:
            self._take()
        return self._found

    def at(self, index: int, where: Expression) -> Value:
        while index >= len(self._found) and self._open:
            self._take()
        if 0 <= index < len(self._found):
            return force(self._found[index])
        return super().at(index, where)

    def _take(self) -> None:
        """Compute the next part."""
        parts, number = self._open[-1]
        if number == len(parts):
            self._open.pop()
            self._inside.discard(id(parts))
            return
        part = parts[number]
        part.scope.session.spend(1, part.expression)
        value = part.force()
        self._open[-1] = (parts, number + 1)
        if isinstance(value, Joined):
            if id(value._parts) in self._inside:
                raise LimitFailure("an array is an element of itself", part.expression)
            self._open.append((value._parts, 0))
            self._inside.add(id(value._parts))
            return
        elements = value.items if isinstance(value, Array) else [value]
        refuse_beyond("elements", len(self._found) + len(elements), "an array", part.expression)
        part.scope.session.spend(len(elements) >> 3, part.expression)
        self._found += elements


def flatten(value: Value) -> list[Value]:
    """The elements of an array and of the arrays in it, or the single value that it is.

    Raises:
        LimitFailure: an array holds itself, or arrays nest without end, or give too many elements.
    """
    if not isinstance(value, Array):
        return [value]
    flat = []
    visited = 0
    most = limit("elements")
    stack = [(value, iter(value.items))]
    inside = {id(value)}
    while stack:
        array, rest = stack[-1]
        for member in rest:
            visited += 1
            where = None
            if member.__class__ is Thunk:
                where = member.expression
                member.scope.session.spend(1, where)
                item = member.force()
            else:
                item = member
            if visited > most:
                refuse_beyond("elements", visited, "an array with those inside it", where)
            if isinstance(item, Array):
                if id(item) in inside:
                    raise LimitFailure("an array is an element of itself", where)
                if len(stack) >= MAX_DEPTH:
                    raise LimitFailure(f"more than {MAX_DEPTH} arrays in one another", where)
                stack.append((item, iter(item.items)))
                inside.add(id(item))
                break
            flat.append(item)
        else:
            stack.pop()
            inside.discard(id(array))
    return flat


class Function(ABC):
    """Base of functions: names of the positional parameters, and the optional ones."""

    __slots__ = ("optional", "parameters")

    def __init__(self, parameters: Sequence[str], optional: Mapping[str, Value]):
        self.parameters = tuple(parameters)
        self.optional = optional

    @abstractmethod
    def call(self, arguments: list[Value], named: dict[str, Value], path: Path) -> Value:
        """The result for one argument per parameter; `path` names the result."""

    def complete(self, named: dict[str, Value]) -> dict[str, Value]:
        """The optional parameters: the given values, or their defaults."""
        for name, value in named.items():
            if name not in self.optional:
                raise Failure(
                    f"function does not have an optional argument {name!r}"
                    + nearest(name, self.optional),
                    value.expression if isinstance(value, Thunk) else None,
                )
        return {**self.optional, **named}


class Closure(Function):
    """A lambda or macro with the scope that it was written in."""

    __slots__ = ("body", "expression", "scope")

    def __init__(
        self,
        parameters: Sequence[str],
        optional: Mapping[str, Value],
        body: Code,
        scope: Record,
        expression: Expression,
    ):
        super().__init__(parameters, optional)
        self.body = body
        self.scope = scope
        self.expression = expression

    def call(self, arguments: list[Value], named: dict[str, Value], path: Path) -> Value:
        return self.run(self.body, arguments, named, path)

    def run(self, body: Code, arguments: list[Value], named: dict[str, Value], path: Path) -> Value:
        """The result of the body, or of other code in its place, for these arguments."""
        session = self.scope.session
        session.spend(1, self.expression)
        if session.depth >= MAX_DEPTH:
            raise LimitFailure(f"more than {MAX_DEPTH} nested function calls", self.expression)
        members = self.complete(named) if named else dict(self.optional)
        members.update(zip(self.parameters, arguments, strict=True))
        session.depth += 1
        try:
            return body(Record(session, self.scope, self.expression, members), path)
        finally:
            session.depth -= 1


class Overload(Function):
    """Several functions under one name, chosen by the number of positional parameters."""

    __slots__ = ("functions",)

    def __init__(self, functions: Sequence[Function]):
        super().__init__(functions[0].parameters, functions[0].optional)
        self.functions = functions

    def choose(self, count: int) -> Function:
        """The function of so many parameters, or the first."""
        for function in self.functions:
            if len(function.parameters) == count:
                return function
        return self.functions[0]

    def call(self, arguments: list[Value], named: dict[str, Value], path: Path) -> Value:
        return self.choose(len(arguments)).call(arguments, named, path)


class Partial(Function):
    """A function whose first arguments are given; it takes the others."""

    __slots__ = ("arguments", "function", "named")

    def __init__(self, function: Function, arguments: list[Value], named: dict[str, Value]):
        optional = {k: thunk for k, thunk in function.optional.items() if k not in named}
        super().__init__(function.parameters[len(arguments) :], optional)
        self.function = function
        self.arguments = arguments
        self.named = named

    def call(self, arguments: list[Value], named: dict[str, Value], path: Path) -> Value:
        self.complete(named)  # refuses options that are given already
        return self.function.call([*self.arguments, *arguments], {**self.named, **named}, path)


class Composition(Function):
    """`first >> second`: the second function applied to the result of the first."""

    __slots__ = ("first", "second")

    def __init__(self, first: Function, second: Function):
        super().__init__(first.parameters, first.optional)
        self.first = first
        self.second = second

    def call(self, arguments: list[Value], named: dict[str, Value], path: Path) -> Value:
        inner = self.first.call(arguments, named, (path, ".arg"))
        return self.second.call([inner], {}, path)


class Instance:
    """An object of the redesigned top level: a class and the record that defines it."""

    __slots__ = ("expression", "path", "record", "type")

    def __init__(self, type: str, record: Record, path: Path, expression: Expression | None):
        self.type = type
        self.record = record
        self.path = path
        self.expression = expression

    def __repr__(self) -> str:
        return f"new {self.type} [...]"

    def with_record(self, record: Record) -> Instance:
        """An object of the same class that another record defines."""
        record.owner = self.type
        return Instance(self.type, record, self.path, self.expression)


class Shape(tuple):
    """What `new TensorShape`, `IntVector` and their like give."""

    __slots__ = ()


def check_text(session: Session, size: int, where: Where) -> None:
    """Refuse a string that grows beyond the limit `text`; a long one counts as many steps.

    Raises:
        LimitFailure: it does, or the steps are spent.
    """
    refuse_beyond("text", size, "a string", where)
    session.spend(size >> 9, where)


def type_name(value: Value) -> str:
    """The name of a value's type, for users."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "number"
    if isinstance(value, Instance):
        return value.type
    names = {
        str: "string",
        Record: "record",
        Array: "array",
        Node: "ComputationNode",
        Network: "ComputationNetwork",
        Shape: "TensorShape",
    }
    if isinstance(value, Function):
        return "function"
    return names.get(type(value), type(value).__name__)


def expect_number(value: Value, where: Expression | None) -> float:
    if not isinstance(value, float):
        raise Failure(f"expected a number, not a {type_name(value)}", where)
    return value


def expect_integer(value: Value, where: Expression | None) -> int:
    number = expect_number(value, where)
    if not number.is_integer():
        raise Failure(f"expected an integer, not {number:g}", where)
    return int(number)


def expect_boolean(value: Value, where: Expression | None) -> bool:
    if not isinstance(value, bool):
        raise Failure(f"expected a boolean, not a {type_name(value)}", where)
    return value


def expect_record(value: Value, where: Expression | None) -> Record:
    if not isinstance(value, Record):
        raise Failure(f"expected a record, not a {type_name(value)}", where)
    return value


def expect_function(value: Value, where: Expression | None) -> Function:
    if not isinstance(value, Function):
        raise Failure(f"expected a function, not a {type_name(value)}", where)
    return value


def expect_array(value: Value, where: Expression | None) -> Array:
    if not isinstance(value, Array):
        raise Failure(f"expected an array, not a {type_name(value)}", where)
    return value
