"""Compiles the parse tree to closures, which evaluate it lazily.

Each expression becomes a `Code`: a function of the scope in which names are looked up and of the
path under which the value is known. Paths give nodes their names: the member `z` makes the path
`z`, the left side of a `+` in it `z.PlusArgs[0]`, the argument for the parameter `x` of a call
`z.x`, the element 2 of an array `z[2]`; records, calls and branches of `if` add nothing themselves.

Source: BrainScriptEvaluator.cpp (Evaluate).
"""

from __future__ import annotations

from collections.abc import Callable

from ...framework.base.errors import nearest
from ..network.network import Network
from ..network.nodes.node import Node
from .edits import (
    Changes,
    change_members,
    changed,
    changed_member,
    changed_value,
    refuse_pending,
    with_changes_in,
)
from .failures import Failure, refuse_beyond
from .language import syntax
from .language.syntax import PRECEDENCE, CntkSource
from .operators import INFIX, member_of_network, member_of_node, node_if, unary
from .values import (
    Array,
    Closure,
    Code,
    Counted,
    Instance,
    Joined,
    Overload,
    Partial,
    Path,
    Record,
    Thunk,
    Value,
    expect_array,
    expect_boolean,
    expect_function,
    expect_integer,
    expect_record,
    type_name,
)

# The names of operands in the paths of nodes.
_NAMES = {
    "with": "With",
    "*": "Times",
    "/": "Div",
    ".*": "ElementTimes",
    "**": "Pow",
    "%": "Mod",
    "+": "Plus",
    "-": "Minus",
    "<": "LT",
    "==": "Equal",
    ">": "GT",
    ">=": "GT",
    "!=": "NotEqual",
    "<=": "LE",
    "&&": "And",
    "||": "Or",
    "^": "Xor",
    ">>": "Before",
    "<<": "Shift",
}
assert PRECEDENCE.keys() - _NAMES.keys() == {":", "=>"}


def compile_expression(expression: syntax.Expression) -> Code:
    """The code that evaluates an expression. Call it, and the code, inside `deep_calls`."""
    return _COMPILERS[type(expression)](expression)


def _literal(expression: syntax.Number | syntax.String | syntax.Boolean) -> Code:
    value = expression.value

    def literal(scope: Record, path: Path) -> Value:
        return value

    return literal


def _identifier(expression: syntax.Identifier) -> Code:
    name = expression.name

    def identifier(scope: Record, path: Path, changes: Changes = ()) -> Value:
        if changes:
            raw = _raw(scope, name)
            if raw is not Thunk:
                return changed_member(raw, path, changes, expression)
        record = scope
        while record is not None:
            members = record.members
            if name in members:
                value = members[name]
                return value.force() if value.__class__ is Thunk else value
            record = record.parent
        # Names with `_` in front are the library's own business.
        hint = nearest(name, (n for n in scope.visible() if n[:1] != "_" or name[:1] == "_"))
        raise Failure(f"unknown identifier {name!r}{hint}", expression)

    return identifier


def _raw(scope: Record, name: str) -> Value:
    """What a name stands for, perhaps not computed yet; the class Thunk itself if nothing."""
    record: Record | None = scope
    while record is not None:
        value = record.members.get(name, Thunk)
        if value is not Thunk:
            return value
        record = record.parent
    return Thunk


def _access(expression: syntax.Access) -> Code:
    run_record = compile_expression(expression.record)
    name = expression.name

    def access(scope: Record, path: Path, changes: Changes = ()) -> Value:
        scope.session.spend(1, expression)
        owner = run_record(scope, path)
        if changes:
            record = owner.record if isinstance(owner, Instance) else owner
            raw = _raw(record, name) if isinstance(record, Record) else Thunk
            if raw is not Thunk:
                return changed_member(raw, path, changes, expression)
            return changed_value(access(scope, path), path, changes, expression)
        if isinstance(owner, Instance):
            # A reader has the dimensions of its data.
            if name == "dim" and "dim" not in owner.record.members:
                data = owner.record.own("data")
                if isinstance(data, Node):
                    return member_of_node(data, name, expression)
            owner = owner.record
        if isinstance(owner, Record):
            value = owner.find(name, Thunk)
            if value is Thunk:
                hint = nearest(name, owner.members)
                raise Failure(f"unknown identifier {name!r}{hint}", expression)
            return value
        if isinstance(owner, Node):
            return member_of_node(owner, name, expression)
        if isinstance(owner, Network):
            return member_of_network(owner, name, expression)
        raise Failure(f"expected a record, not a {type_name(owner)}", expression.record)

    return access


def _record(expression: syntax.Record) -> Code:
    codes = []
    inner = []  # a.b.c = x
    for m in expression.members:
        code = (m.name, compile_expression(m.value), m.value, f".{m.name}")
        (inner if "." in m.name else codes).append(code)

    def record(scope: Record, path: Path, changes: Changes = ()) -> Record:
        session = scope.session
        session.spend(1 + len(expression.members), expression)
        inside = Record(session, scope, expression)
        members = inside.members
        for name, code, value, piece in codes:
            members[name] = Thunk(code, inside, (path, piece), value)
        if inner:
            own = [
                (tuple(name.split(".")), Thunk(code, inside, (path, piece), value))
                for name, code, value, piece in inner
            ]
            change_members(inside, own, False)
        if session.watched is not None:
            session.watch(inside)
        return change_members(inside, changes, True) if changes else inside

    return record


def _delete(expression: syntax.Delete) -> Code:
    def delete(scope: Record, path: Path) -> Value:
        message = "delete is for records that change others: base + [ name = delete ]"
        raise Failure(message, expression)

    return delete


def _array(expression: syntax.Array) -> Code:
    codes = [(compile_expression(item), item, f"[{i}]") for i, item in enumerate(expression.items)]
    # Layers and functions of CNTK's library have nested arrays in both languages.
    joins = not isinstance(expression.source, CntkSource)

    def array(scope: Record, path: Path) -> Array:
        scope.session.spend(len(codes), expression)
        parts = [Thunk(code, scope, (path, piece), item) for code, item, piece in codes]
        return Joined(parts) if joins and scope.session.redesigned else Array([*parts])

    return array


def _range(expression: syntax.Range) -> Code:
    run_first = compile_expression(expression.first)
    run_last = compile_expression(expression.last)
    initializer = expression.initializer
    run_initializer = compile_expression(initializer)

    def element(index: int) -> Code:
        def run(scope: Record, path: Path) -> Value:
            function = run_initializer(scope, (None, "_lambda") if path else None)
            return expect_function(function, initializer).call([float(index)], {}, path)

        return run

    def array(scope: Record, path: Path) -> Array:
        first = run_first(scope, (path, ".array_first"))
        last = run_last(scope, (path, ".array_last"))
        first = expect_integer(first, expression.first)
        last = expect_integer(last, expression.last)
        function = run_initializer(scope, (path, "._initializer"))
        if len(expect_function(function, initializer).parameters) != 1:
            raise Failure("'array' requires a function of one argument, the index", initializer)
        size = max(last - first + 1, 0)
        refuse_beyond("elements", size, "an array", expression)
        scope.session.spend(size >> 3, expression)

        def make(index: int) -> Thunk:
            place = (path, f"[{index}]") if path else None
            return Thunk(element(index), scope, place, initializer)

        return Counted(first, size, make)

    return array


def _lambda(expression: syntax.Lambda) -> Code:
    body = compile_expression(expression.body)
    parameters = expression.parameters
    defaults = [
        (m.name, compile_expression(m.value), m.value, f".{m.name}") for m in expression.optional
    ]

    def function(scope: Record, path: Path) -> Closure:
        optional = {
            name: Thunk(code, scope, (path, piece), value) for name, code, value, piece in defaults
        }
        return Closure(parameters, optional, body, scope, expression)

    return function


def _apply(expression: syntax.Apply) -> Code:
    run_function = compile_expression(expression.function)
    codes = [(compile_expression(argument), argument) for argument in expression.arguments]
    named_codes = [(m.name, compile_expression(m.value), m) for m in expression.named]
    count = len(codes)
    called = _called_name(expression.function)

    def apply(scope: Record, path: Path, changes: Changes = ()) -> Value:
        scope.session.spend(1 + count + len(named_codes), expression)
        function = expect_function(run_function(scope, path), expression.function)
        if isinstance(function, Overload):
            function = function.choose(count)
        names = function.parameters
        partial = 0 < count < len(names) and scope.session.redesigned
        if len(names) != count and not partial:
            raise Failure(
                f"function expects {len(names)} positional parameters"
                f"{' (' + ', '.join(names) + ')' if names else ''}, {count} were provided",
                expression,
            )
        arguments = [
            Thunk(code, scope, (path, "." + name), argument)
            for (code, argument), name in zip(codes, names, strict=False)
        ]
        named = {
            name: Thunk(code, scope, (path, "." + name), member)
            for name, code, member in named_codes
        }
        if partial:
            return Partial(function, arguments, named)
        try:
            if not changes:
                return function.call(arguments, named, path)
            if isinstance(function, Closure):
                body = function.body
                inside = with_changes_in(body, changes, expression)
                return function.run(inside, arguments, named, path)
            value = function.call(arguments, named, path)
            return changed_value(value, path, changes, expression)
        except Failure as failure:
            failure.chain.append((called, expression.location))
            raise

    return apply


def _called_name(function: syntax.Expression) -> str:
    names = []
    while isinstance(function, syntax.Access):
        names.append(function.name)
        function = function.record
    if isinstance(function, syntax.Identifier):
        names.append(function.name)
        return f"in {'.'.join(reversed(names))} (...), called at"
    return "called at"


def _index(expression: syntax.Index) -> Code:
    run_array = compile_expression(expression.array)
    run_index = compile_expression(expression.index)

    def index(scope: Record, path: Path) -> Value:
        scope.session.spend(1, expression)
        array = run_array(scope, (path, "._vector"))
        array = expect_array(array, expression.array)
        number = run_index(scope, (path, "._index"))
        return array.at(expect_integer(number, expression.index), expression.index)

    return index


def _unary(expression: syntax.Unary) -> Code:
    run_operand = compile_expression(expression.operand)
    piece = {"+": None, "-": "._negate", "!": "._not"}[expression.operator]

    def apply_unary(scope: Record, path: Path) -> Value:
        scope.session.spend(1, expression)
        inner = (path, piece) if piece else path
        return unary(expression, run_operand(scope, inner), scope, path)

    return apply_unary


def _infix(expression: syntax.Infix) -> Code:
    run_left = compile_expression(expression.left)
    run_right = compile_expression(expression.right)
    name = _NAMES[expression.operator]
    left_piece, right_piece = f".{name}Args[0]", f".{name}Args[1]"
    operate = INFIX[expression.operator]
    decided = {"&&": False, "||": True}.get(expression.operator)

    def infix(scope: Record, path: Path) -> Value:
        scope.session.spend(1, expression)
        left = run_left(scope, (path, left_piece))
        if left is decided:
            return left
        right = run_right(scope, (path, right_piece))
        return operate(expression, left, right, scope, path)

    return infix


def _if(expression: syntax.If) -> Code:
    run_condition = compile_expression(expression.condition)
    run_then = compile_expression(expression.then)
    run_otherwise = compile_expression(expression.otherwise)

    def choose(scope: Record, path: Path, changes: Changes = ()) -> Value:
        scope.session.spend(1, expression)
        condition = run_condition(scope, (path, ".if"))
        if changes and condition.__class__ is bool:
            branch = run_then if condition else run_otherwise
            return changed(branch, scope, path, changes, expression)
        if changes:
            return changed_value(choose(scope, path), path, changes, expression)
        if condition is True:
            return run_then(scope, path)
        if condition is False:
            return run_otherwise(scope, path)
        if isinstance(condition, Node):
            then = run_then(scope, (path, ".then"))
            otherwise = run_otherwise(scope, (path, ".else"))
            return node_if(expression, condition, then, otherwise, scope, path)
        return expect_boolean(condition, expression.condition)

    return choose


def _new(expression: syntax.New) -> Code:
    run_argument = compile_expression(expression.argument)
    name = expression.type

    def new(scope: Record, path: Path, changes: Changes = ()) -> Value:
        types = scope.session.types
        runtime = types.get(name)
        if runtime is None:
            raise Failure(f"unknown runtime type {name!r}{nearest(name, types)}", expression)
        inside = None if runtime.names_inside_start_anew else path
        if changes:
            record = changed(run_argument, scope, inside, changes, expression.argument)
        else:
            record = run_argument(scope, inside)
        record = expect_record(record, expression.argument)
        refuse_pending(record)
        if not record.owner:
            record.owner = name
        return runtime.construct(record, path, expression)

    return new


_COMPILERS: dict[type, Callable[..., Code]] = {
    syntax.Number: _literal,
    syntax.String: _literal,
    syntax.Boolean: _literal,
    syntax.Delete: _delete,
    syntax.Identifier: _identifier,
    syntax.Access: _access,
    syntax.Record: _record,
    syntax.Array: _array,
    syntax.Range: _range,
    syntax.Lambda: _lambda,
    syntax.Apply: _apply,
    syntax.Index: _index,
    syntax.Unary: _unary,
    syntax.Infix: _infix,
    syntax.If: _if,
    syntax.New: _new,
}
