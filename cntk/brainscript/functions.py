"""The classes of BrainScript's functions on strings, numbers and values.

`Format (x, '.2')` is `new StringFunction [ what = 'Format' ; arg = x ; how = '.2' ]`.

Source: BrainScriptEvaluator.cpp (StringFunction, NumericFunction, CompareFunction, PrintAction,
FailAction, Debug), ComputationNode.cpp (TensorShape and the vectors).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np

from .failures import Failure, refuse_beyond, too_nested
from .language.depth import MAX_SHOWN
from .language.printer import number_text
from .language.syntax import Expression
from .values import (
    Array,
    Path,
    Record,
    RuntimeType,
    Session,
    Shape,
    Value,
    check_text,
    flatten,
    force,
    type_name,
)

_FORMAT = re.compile(r"[-+ #0]*([0-9]{0,3})(?:\.([0-9]{0,3}))?")


def _indented(text: str, opening: str, closing: str, own_lines: bool) -> str:
    inside = "\n".join("  " + line for line in text.split("\n"))
    if own_lines:
        return f"{opening}\n{inside}\n{closing}"
    return f"{opening}{inside[1:]} {closing}"


def show(value: Value, session: Session, how: str = "", where: Expression | None = None) -> str:
    """A value as text. `how` is the middle of a printf format, such as ".2" or "08".

    Raises:
        Failure: `how` is no such thing, or the text grows beyond a limit.
    """
    if not _FORMAT.fullmatch(how):
        raise Failure(f"{how!r} is not the middle of a printf format, such as '.2'", where)
    return _Shown(session, how, where).text(value, ())


class _Shown:
    """A value on its way to a text, whose length is known before it is put together."""

    def __init__(self, session: Session, how: str, where: Expression | None):
        self.session = session
        self.how = how
        self.where = where

    def text(self, value: Value, names: tuple[str, ...]) -> str:
        """The text of a value that is reached by these names."""
        if len(names) > MAX_SHOWN:
            raise too_nested(names, self.where)
        self.session.spend(1, self.where)
        if isinstance(value, Record):
            members = (
                f"{name} = {self.text(value.get(name), (*names, name))}"
                for name in sorted(value.members)
            )
            return _indented(self._lines(members), "[", "]", True)
        if isinstance(value, Array):
            items = (
                self.text(force(item), (*names, f"[{number}]"))
                for number, item in enumerate(value.items, value.first)
            )
            return _indented(self._lines(items), "(", ")", False)
        return _shown_scalar(value, self.how)

    def _lines(self, texts: Iterable[str]) -> str:
        """Texts in lines of their own."""
        kept = []
        size = 0
        for text in texts:
            size += len(text)
            refuse_beyond("text", size, "a value as text", self.where)
            kept.append(text)
        check_text(self.session, size, self.where)
        return "\n".join(kept)


def _shown_scalar(value: Value, how: str) -> str:
    if isinstance(value, str):
        return f"%{how}s" % value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        whole = value.is_integer() and abs(value) < 2**31
        return f"%{how}d" % int(value) if whole else f"%{how}f" % value
    return f"<{type_name(value)}>"


def _string(record: Record, name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise Failure(f"expected a string, not a {type_name(value)}", record.place(name))
    return value


def _number(record: Record, name: str) -> float:
    value = record.get(name)
    if not isinstance(value, float):
        raise Failure(f"expected a number, not a {type_name(value)}", record.place(name))
    return value


def _integer(record: Record, name: str) -> int:
    value = _number(record, name)
    if not value.is_integer():
        raise Failure(f"expected an integer, not {number_text(abs(value))}", record.place(name))
    return int(value)


def _pair(record: Record, name: str) -> list[Value]:
    value = record.get(name)
    if not isinstance(value, Array) or len(value) != 2:
        raise Failure(f"{name!r} must be an array of two", record.place(name))
    return [force(item) for item in value.items]


def _unknown(record: Record, what: str) -> Failure:
    return Failure(f"unknown 'what' value: {what}", record.place("what"))


def string_function(record: Record, path: Path, where: Expression) -> str:
    """Format, Chr, Substr and Replace."""
    what = _string(record, "what")
    if what == "Format":
        return show(record.get("arg"), record.session, _string(record, "how"), where)
    if what == "Chr":
        code = _integer(record, "arg")
        if not 0 <= code < 0x110000 or 0xD800 <= code < 0xE000:  # halves of a character
            raise Failure(f"no character has the code {code}", record.place("arg"))
        return chr(code)
    if what == "Substr":
        text = _string(record, "arg")
        begin = _integer(record, "pos")
        count = _integer(record, "chars")
        begin = min(max(0, len(text) + begin) if begin < 0 else begin, len(text))
        return text[begin:] if count < 0 else text[begin : begin + count]
    if what == "Replace":
        text, old = _string(record, "arg"), _string(record, "replacewhat")
        return replaced_text(text, old, _string(record, "withwhat"), record.session, where)
    raise _unknown(record, what)


def replaced_text(text: str, old: str, new: str, session: Session, where: Expression) -> str:
    """The text with every `old` in it replaced; as it is if that is empty."""
    if old:
        check_text(session, len(text) + text.count(old) * len(new), where)
    return text.replace(old, new) if old else text


def numeric_function(record: Record, path: Path, where: Expression) -> float:
    """Floor, Ceil, Round, Abs, Length, Mod and IntDiv."""
    what = _string(record, "what")
    if what == "Length":
        value = record.get("arg")
        if isinstance(value, str):
            return float(len(value))
        if not isinstance(value, Array):
            raise Failure(
                f"expected a string or an array, not a {type_name(value)}", record.place("arg")
            )
        if value.first != 0:
            raise Failure("the array is expected to begin with index 0", record.place("arg"))
        return float(len(value))
    if what in ("Mod", "IntDiv"):
        pair = _pair(record, "args")
        if not all(isinstance(v, float) and v.is_integer() for v in pair) or pair[1] == 0:
            raise Failure(f"{what} takes two integers, the second not 0", record.place("args"))
        quotient = math.trunc(pair[0] / pair[1])
        return float(quotient) if what == "IntDiv" else math.fmod(*pair)
    one = {"Floor": np.floor, "Ceil": np.ceil, "Abs": np.fabs, "Round": _halves_up}.get(what)
    if one is None:
        raise _unknown(record, what)
    return float(one(_number(record, "arg")))


def _halves_up(x: float) -> float:
    return float(np.floor(x + 0.5))


def compare_function(record: Record, path: Path, where: Expression) -> bool:
    """IsSameObject, IsArray, IsDouble and IsBool."""
    what = _string(record, "what")
    if what == "IsSameObject":
        first, second = _pair(record, "args")
        return first is second
    types = {"IsArray": Array, "IsDouble": float, "IsBool": bool}
    if what not in types:
        raise _unknown(record, what)
    return isinstance(record.get("args"), types[what])


def print_action(record: Record, path: Path, where: Expression) -> Value:
    """Says the value of `what`, formatted as `how` says, and is that value."""
    value = record.get("what")
    how = record.own("how", "")
    session = record.session
    is_plain = isinstance(value, str) and not how
    session.say(value if is_plain else show(value, session, how, where))
    return value


def fail_action(record: Record, path: Path, where: Expression) -> Value:
    """Ends the evaluation with the message `what`."""
    raise Failure(_string(record, "what"), record.place("what"))


def debug(record: Record, path: Path, where: Expression) -> Value:
    """Says `say` and the value if `enabled`; is the value."""
    value = record.get("value")
    if record.find("enabled", True):
        say = record.find("say", "")
        if say:
            record.session.say(str(say))
        record.session.say(show(value, record.session, "", where))
    return value


def _vector(member: str, kind: type) -> RuntimeType:
    def construct(record: Record, path: Path, where: Expression) -> Shape:
        items = flatten(record.get(member))
        for item in items:
            if not isinstance(item, kind):
                raise Failure(f"{member!r} holds a {type_name(item)}", record.place(member))
            if kind is float and not (item.is_integer() and abs(item) < 2**53):
                raise Failure(f"expected an integer, not {item:g}", record.place(member))
        return Shape(int(item) if kind is float else item for item in items)

    return RuntimeType(construct)


FUNCTION_TYPES = {
    "StringFunction": RuntimeType(string_function),
    "NumericFunction": RuntimeType(numeric_function),
    "CompareFunction": RuntimeType(compare_function),
    "PrintAction": RuntimeType(print_action),
    "FailAction": RuntimeType(fail_action),
    "Debug": RuntimeType(debug),
    "TensorShape": _vector("dims", float),
    "IntVector": _vector("items", float),
    "SizeVector": _vector("items", float),
    "BoolVector": _vector("items", bool),
}
