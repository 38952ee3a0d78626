"""The parse tree as BrainScript text, which parses to an equal tree.

Included members are printed in place of the include; comments are not part of the tree.
"""

from __future__ import annotations

from .depth import deep_calls
from .syntax import (
    POSTFIX,
    PRECEDENCE,
    UNARY,
    Access,
    Apply,
    Array,
    Boolean,
    Delete,
    Expression,
    Identifier,
    If,
    Index,
    Infix,
    Lambda,
    Member,
    New,
    Number,
    Range,
    Record,
    String,
    Unary,
)

WIDTH = 100
_STEP = "    "


def print_members(record: Record) -> str:
    """A record's members as the text of a file, one on a line."""
    with deep_calls():
        return "".join([_member(member, "") + "\n" for member in record.members])


def print_expression(expression: Expression) -> str:
    """An expression on one line or, where records in it do not fit, on several."""
    with deep_calls():
        return _text(expression, 0, "")


def number_text(value: float) -> str:
    """A number as BrainScript writes it: no sign, whole numbers without a point."""
    if value == float("inf"):
        return "1e999"
    if value == int(value) and value < 1e16:
        return str(int(value))
    return repr(value)


def _member(member: Member, indent: str) -> str:
    value = member.value
    index = value.initializer if isinstance(value, Range) else None
    if isinstance(value, Range) and isinstance(index, Lambda) and _is_simple(index):
        bounds = f"{_text(value.first, 0, indent)} .. {_text(value.last, 0, indent)}"
        head = f"{member.name}[{index.parameters[0]}:{bounds}]"
        value = index.body
        if isinstance(value, Lambda) and not _is_simple(value):
            head += _parameters(value, indent)
            value = value.body
    elif isinstance(value, Lambda):
        head = member.name + _parameters(value, indent)
        value = value.body
    else:
        head = member.name
    return f"{indent}{head} = {_text(value, 0, indent)}"


def _is_simple(expression: Expression) -> bool:
    """A lambda that `x => body` can write."""
    return (
        isinstance(expression, Lambda)
        and len(expression.parameters) == 1
        and not expression.optional
    )


def _parameters(value: Lambda, indent: str) -> str:
    items = [*value.parameters, *(_named(member, indent) for member in value.optional)]
    return f" ({', '.join(items)})"


def _named(member: Member, indent: str) -> str:
    return f"{member.name} = {_text(member.value, 0, indent)}"


def _record(record: Record, indent: str) -> str:
    opening, closing = "{}" if record.braces else "[]"
    if not record.members:
        return opening + closing
    lines = [_member(member, indent + _STEP) for member in record.members]
    if not any("\n" in line for line in lines):
        on_one_line = " ; ".join([line[len(indent) + len(_STEP) :] for line in lines])
        if len(indent) + len(on_one_line) < WIDTH // 2:
            return f"{opening} {on_one_line} {closing}"
    return "\n".join([opening, *lines, indent + closing])


def _text(expression: Expression, weakest: int, indent: str) -> str:
    """The text of an expression, in parentheses if it binds less tightly than `weakest`."""
    text, binds = _with_strength(expression, indent)
    return f"({text})" if binds < weakest else text


def _with_strength(expression: Expression, indent: str) -> tuple[str, int]:
    match expression:
        case Number(value=value):
            return number_text(value), POSTFIX
        case String(value=value):
            quote = "'" if '"' in value else '"'
            return f"{quote}{value}{quote}", POSTFIX
        case Boolean(value=value):
            return str(value).lower(), POSTFIX
        case Identifier(name=name):
            return name, POSTFIX
        case Delete():
            return "delete", POSTFIX
        case Record():
            return _record(expression, indent), POSTFIX
        case Array(items=items):
            return _array(items, indent)
        case Range(first=first, last=last, initializer=initializer):
            bounds = f"{_text(first, 0, indent)} .. {_text(last, 0, indent)}"
            return f"array [{bounds}] ({_text(initializer, 0, indent)})", POSTFIX
        case Lambda(parameters=parameters, body=body):
            if not _is_simple(expression):
                raise ValueError("a function of several parameters can only be a record's member")
            return f"{parameters[0]} => {_text(body, 0, indent)}", 0
        case Apply(function=function, arguments=arguments, named=named, braces=braces):
            items = [_text(argument, 1, indent) for argument in arguments]
            items += [_named(member, indent) for member in named]
            opening, closing = "{}" if braces else "()"
            return f"{_head(function, indent)} {opening}{', '.join(items)}{closing}", POSTFIX
        case Access(record=record, name=name):
            return f"{_head(record, indent)}.{name}", POSTFIX
        case Index(array=array, index=index):
            return f"{_head(array, indent)}[{_text(index, 0, indent)}]", POSTFIX
        case Unary(operator=operator, operand=operand):
            return f"{operator}{_text(operand, UNARY, indent)}", UNARY
        case Infix(operator=operator, left=left, right=right):
            strength = PRECEDENCE[operator]
            before = _text(left, strength, indent)
            return f"{before} {operator} {_text(right, strength + 1, indent)}", strength
        case If(condition=condition, then=then, otherwise=otherwise):
            parts = [_text(part, 0, indent) for part in (condition, then, otherwise)]
            return "if {} then {} else {}".format(*parts), 0
        case New(type=name, argument=argument):
            return f"new {name} {_operand(argument, indent)}", POSTFIX
    raise TypeError(f"no expression: {expression!r}")


def _head(expression: Expression, indent: str) -> str:
    """What `.`, `[`, `(` or `{` follows."""
    text = _text(expression, POSTFIX, indent)
    return f"({text})" if isinstance(expression, Number) else text


def _operand(expression: Expression, indent: str) -> str:
    """The text after `new C`; a postfix would belong to the whole, not to the operand."""
    text = _text(expression, POSTFIX, indent)
    return f"({text})" if isinstance(expression, (Access, Apply, Index, Number)) else text


def _array(items: tuple[Expression, ...], indent: str) -> tuple[str, int]:
    strength = PRECEDENCE[":"]
    if len(items) < 2 or isinstance(items[0], Array):
        inside = " ; ".join([_text(item, 0, indent) for item in items])
        return f"[| {inside} |]" if inside else "[| |]", POSTFIX
    return " : ".join([_text(item, strength + 1, indent) for item in items]), strength
