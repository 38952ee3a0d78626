"""Writes functions that fill the structs of native functions, one for each declaration.

A net has some five structs an operator, which are filled anew for each shape of its inputs: by a
function of its own, all fields at once, a struct takes a fifth of the time that a walk through
tables of its fields took.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ...native.arguments import (
    Address,
    Array,
    Field,
    Inner,
    Real,
    Rest,
    Step,
    Struct,
    Structs,
    Whole,
)

_CONTIGUOUS, _ALIGNED, _WRITEABLE = 1, 256, 1024
"""Bits of NumPy's `flags.num`."""


def text_of(struct: Struct, helpers: Collection[str], sizes: Mapping[str, int]) -> tuple[str, str]:
    """How `struct.pack` lays a struct out, and the text of a function that fills it:
    `fill(_layout, _library, _places, *, FIELDS)`, which returns bytes and owners.

    A value that is not plainly right goes to the method of `_layout` that converts or refuses it.

    Args:
        helpers: functions that expressions call.
        sizes: bytes of the structs that lie inside, by field.
    """
    fields = {name: field for name, field in struct.fields.items() if not isinstance(field, Rest)}
    given = {name: field for name, field in fields.items() if not getattr(field, "made", False)}
    parameters = [f"{name}=None" if may_lack(field) else name for name, field in given.items()]
    lines = []
    if any(getattr(field, "dtype", "") in ("T", "packed") for field in given.values()):
        lines.append("_T = _dtype(_library.dtype)")
    lines += _of_steps({name: one for name, one in given.items() if isinstance(one, Step)})
    numbers = {name: one for name, one in given.items() if isinstance(one, Step | Whole)}
    lines += _of_numbers(numbers) if numbers else ()
    # Sizes of arrays are expressions of what comes before.
    for kind, text in _CHECKED.items():
        for name, field in given.items():
            if isinstance(field, kind):
                lines += text(name, field)
    for text in struct.where:
        lines += [f"if not ({text}):", f" raise _layout.refuse_together({text!r}, locals())"]
    words = [_word(name, field) for name, field in fields.items()]
    owners = [n for n, f in given.items() if isinstance(f, Array | Structs)]
    owners += [f"_part_{n}.memory" for n, f in given.items() if isinstance(f, Inner)]
    head = f"def fill(_layout, _library, _places, {'*, ' * bool(given)}{', '.join(parameters)}):"
    lines = [head, *(f"{n} = _library.constant({n!r})" for n in constants(struct, helpers)), *lines]
    lines.append(f"return _pack({', '.join(words)}), [{', '.join(owners)}]")
    form = "".join(_form(field, sizes.get(name, 0)) for name, field in fields.items())
    return "=" + form, "\n ".join(lines)


def constants(struct: Struct, helpers: Collection[str]) -> list[str]:
    """Numbers of the library that its expressions name."""
    fields = struct.fields.values()
    texts = [*struct.where, *(getattr(one, "sizes", getattr(one, "count", "")) for one in fields)]
    names = set(re.findall(r"(?<!['.])\b[A-Za-z]\w*", " ".join(texts)))
    return sorted(names - {*struct.fields, *helpers, *keyword.kwlist})


def may_lack(field: Field) -> bool:
    """Whether a field need not be given."""
    return isinstance(field, Step) or bool(getattr(field, "optional", False))


def _word(name: str, field: Field) -> str:
    """What a field gets."""
    if isinstance(field, Array | Structs):
        return f"_at_{name}"
    if isinstance(field, Inner):
        return f"bytes({name})"
    return "0" if getattr(field, "made", False) else name


def _form(field: Field, size: int) -> str:
    if isinstance(field, Inner):
        return f"{size}s"
    return "d" if isinstance(field, Real) else "q"


def _of_steps(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, field in fields.items():
        yield f"if {name} is None:"
        yield f" {name} = _layout.step({field.array!r}, {field.array}, {field.axis})"


def _of_numbers(fields: Mapping[str, Any]) -> Iterator[str]:
    """All at once, as nearly all are plain and within their bounds."""
    bounds = {name: _bounds(field) for name, field in fields.items()}
    plain = [
        f"type({n}) is int and {least} <= {n} <= {most}" for n, (least, most) in bounds.items()
    ]
    yield f"if not ({' and '.join(plain)}):"
    for name, (least, most) in bounds.items():
        yield f" {name} = _layout.whole({name!r}, {least}, {most}, {name})"


def _bounds(field: Any) -> tuple[int, int]:
    whole = field if isinstance(field, Whole) else Whole()
    return whole.least, whole.most


def _of_real(name: str, _: Any) -> Iterator[str]:
    yield f"if type({name}) is not float:"
    yield f" {name} = _layout.real({name!r}, {name})"


def _of_address(name: str, field: Any) -> Iterator[str]:
    yield f"if type({name}) is not int or not {name}:"
    yield f" {name} = _layout.address({name!r}, {name}, {field.optional})"


def _of_part(name: str, field: Any) -> Iterator[str]:
    yield f"_part_{name} = {name}"
    yield f"{name} = _layout.part({name!r}, {field.struct!r}, {name})"


def _of_array(name: str, field: Any) -> Iterator[str]:
    dtype, unit = {
        "T": ("_T", f"{name}.itemsize"),
        "packed": ("", "_T.itemsize"),
        "bytes": ("", "1"),
    }.get(field.dtype, (f"_dtypes[{field.dtype!r}]", f"{name}.itemsize"))
    flags = _CONTIGUOUS | _ALIGNED | (_WRITEABLE if field.written else 0)
    right = [f"type({name}) is _ndarray", f"{name}.flags.num & {flags} == {flags}", "not _places"]
    right += [f"{name}.dtype is {dtype}"] if dtype else []
    yield f"if {name} is None:"
    yield f" _at_{name} = {0 if field.optional else f'_layout.lacks({name!r})'}"
    yield "else:"
    for line in reach_text(field.sizes):
        yield " " + line
    yield f" if {' and '.join(right)} and not _low and _high * {unit} <= {name}.nbytes:"
    yield f"  _at_{name} = {name}.ctypes.data"
    yield " else:"
    given = f"_library, {name!r}, _fields[{name!r}], {name}, (_low, _high), _places.get({name!r})"
    yield f"  _at_{name} = _layout.place({given})"


def _of_structs(name: str, field: Any) -> Iterator[str]:
    yield f"_at_{name} = _layout.several({name!r}, _fields[{name!r}], {name}, {field.count})"


def reach_text(sizes: str) -> Iterator[str]:
    """Lines that find `_low` and `_high`, the first and the last element, and one, of an array."""
    sides = [one.partition(":")[::2] for one in sizes.split()]
    steps = []
    for number, (size, step) in enumerate(sides):
        yield f"_s{number} = {size}"
        if step:
            yield f"_t{number} = {step}"
        steps.append(f"_t{number}" if step else _product(range(number + 1, len(sides))))
    sure = [f"_s{n} > 0" for n in range(len(sides))]
    sure += [f"_t{n} >= 0" for n, (_, step) in enumerate(sides) if step]
    if all(not step for _, step in sides):
        last = _product(range(len(sides)))
    else:
        last = " + ".join(["1", *(f"(_s{n} - 1) * {step}" for n, step in enumerate(steps))])
    pairs = ", ".join(f"_s{n}, {step}" for n, step in enumerate(steps))
    yield "_low = 0"
    yield f"if {' and '.join(sure)}:"
    yield f" _high = {last}"
    yield "else:"
    yield f" _low, _high = reach({pairs})"


def _product(numbers: range) -> str:
    return "*".join(f"_s{number}" for number in numbers) or "1"


_CHECKED: dict[Any, Callable[[str, Any], Iterator[str]]] = {
    Real: _of_real,
    Address: _of_address,
    Inner: _of_part,
    Array: _of_array,
    Structs: _of_structs,
}
"""How fields are checked, in this order."""
