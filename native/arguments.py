"""What native functions take: structs that are declared once, for C and for Python.

A function of a C file takes the address of its argument: a struct of fields of eight bytes.
`declarations.py` declares it, and three things follow:

- the C definition, in a header that is made when the file is compiled;
- the block that Python fills, by keyword (framework/fusion/compiled/arguments.py);
- the function that fills and checks it: dtypes, layouts and least sizes of arrays, bounds of
  numbers. Its text is made here, since a function of its own fills a struct in a third of the time
  that a walk through tables of fields takes.

A new function `scale` of `scaling.c`, out = factor * x, is declared as

    "scaling": (
        Struct("scale", rows=COUNT, columns=COUNT, factor=REAL,
               x=reads("rows:step columns"), step=step_of("x"), out=writes("rows columns")),
    ),

and then C and Python say

    #include "scaling_arguments.h"
    EXPORT(scale)(const struct scale *a, word t, word parts) { ... a->x + i * a->step ... }

    block = native.bind("scaling", x.dtype, "scale",
                        rows=len(x), columns=x.shape[1], factor=2.0, x=x, out=out)
    call = team.block_task(work, block)

Sizes are written in elements, a word for each dimension: `rows:step` are rows that lie `step`
apart, `columns` elements side by side; `columns:1` says nothing of how the array's own axes lie.
Both may be expressions without blanks of other fields, of numbers that the file exports (`lanes` is
EXPORTED(JOIN(lanes, UNIT)) in C), of `whole(n,unit)`, n rounded up to a multiple, of `end(array)`,
one more than the largest number in an array (`end(array,'field')`: in a field of its records), of
`spread(array,n)`, that or n where there is no array, of `span(image)`, the elements of one image,
and of `given(a,b)`, whether arrays are there.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

_C_TYPES = {
    "T": "T",
    "packed": "T",
    "bytes": "char",
    "float32": "float",
    "float64": "double",
    "int64": "word",
    "int32": "int32_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint64": "uint64_t",
}
"""How C calls a dtype. T is that of the file's kind. Of any dtype are "packed", which C reads as T,
and "bytes", whose sizes are in bytes."""


@dataclass(frozen=True)
class Whole:
    """A whole number.

    Attributes:
        least, most: its bounds.
        made: whether C writes it: it begins with 0, and is not given.
    """

    least: int = -(1 << 62)
    most: int = 1 << 62
    made: bool = False


@dataclass(frozen=True)
class Real:
    """A double."""


@dataclass(frozen=True)
class Address:
    """An address that is not of an array: a function, or what one of another library wants.

    Attributes:
        optional: whether it may be 0.
    """

    optional: bool = False


@dataclass(frozen=True)
class Step:
    """The distance of an array's neighbors along an axis, in elements.

    Where it is not given, it is the array's. Where there is no array, or it lacks the axis, it is
    0: the same row serves for all.
    """

    array: str
    axis: int


@dataclass(frozen=True)
class Array:
    """Where an array begins.

    Attributes:
        dtype: a name of `_C_TYPES`, or of a record that C files declare.
        sizes: what it holds at least; see the head of this file.
        read, written: what the function does with it.
        optional: whether it may be None, 0 in C.
    """

    dtype: str
    sizes: str
    read: bool
    written: bool
    optional: bool


@dataclass(frozen=True)
class Inner:
    """Another struct in this place."""

    struct: str


@dataclass(frozen=True)
class Structs:
    """Where several of another struct lie one behind the other.

    Attributes:
        count: an expression, how many there are at least.
    """

    struct: str
    count: str
    optional: bool = False


@dataclass(frozen=True)
class Rest:
    """Another struct at the end, as often as an argument has it: whoever binds one declares a
    struct that begins alike, and continues with the fields of each."""

    struct: str
    made: bool = True


Field = Whole | Real | Address | Step | Array | Inner | Structs | Rest

COUNT = Whole(0)
SOME = Whole(1)
FLAG = Whole(0, 1)
STEP = NUMBER = Whole()
RESULT = Whole(made=True)
REAL = Real()
ADDRESS = Address()
MAYBE = Address(optional=True)


def reads(sizes: str, dtype: str = "T", *, optional: bool = False) -> Array:
    """An array that a function reads."""
    return Array(dtype, sizes, True, False, optional)


def writes(sizes: str, dtype: str = "T", *, optional: bool = False) -> Array:
    """An array that a function writes, whatever was in it."""
    return Array(dtype, sizes, False, True, optional)


def updates(sizes: str, dtype: str = "T", *, optional: bool = False) -> Array:
    """An array that a function reads and writes."""
    return Array(dtype, sizes, True, True, optional)


def step_of(array: str, axis: int = -2) -> Step:
    """The step of an array's axis, that of its rows if none is named."""
    return Step(array, axis)


class Struct:
    """The argument of a function, or a part of one.

    Args:
        functions: names of those that take it; the first is its own name.
        where: what must hold of its fields: expressions as of sizes, but with blanks.
    """

    def __init__(self, *functions: str, where: tuple[str, ...] = (), **fields: Field) -> None:
        self.name = functions[0]
        self.functions = functions
        self.where = where
        self.fields = fields

    def __repr__(self) -> str:
        return f"Struct{(*self.functions, self.where, self.fields)}"

    def c_definition(self) -> str:
        """The struct in C."""
        lines = [f"  {_c_field(name, field)};\n" for name, field in self.fields.items()]
        return f"struct {self.name} {{\n{''.join(lines)}}};\n"

    def parts(self) -> Iterator[str]:
        """The structs that its definition wants before it."""
        fields = self.fields.values()
        return (one.struct for one in fields if isinstance(one, Inner | Structs | Rest))


_EIGHT_BYTES = " __attribute__((aligned(8)))"
"""Addresses of four bytes have room for eight, as Python writes them."""


def _c_field(name: str, field: Field) -> str:
    if isinstance(field, Real):
        return f"double {name}"
    if isinstance(field, Address):
        return f"void *{name}{_EIGHT_BYTES}"
    if isinstance(field, Array):
        constant = "" if field.written else "const "
        return f"{constant}{_C_TYPES.get(field.dtype, field.dtype)} *{name}{_EIGHT_BYTES}"
    if isinstance(field, Inner):
        return f"struct {field.struct} {name}"
    if isinstance(field, Structs):
        return f"const struct {field.struct} *{name}{_EIGHT_BYTES}"
    if isinstance(field, Rest):
        return f"struct {field.struct} {name}[]"
    return f"word {name}"


def _c_record(name: str, fields: Mapping[str, str]) -> str:
    texts = "".join(f" {_C_TYPES[dtype]} {field};" for field, dtype in fields.items())
    return f"typedef struct {{{texts} }} {name};\n"


def _c_enum(names: type[IntEnum]) -> str:
    return f"enum {{ {', '.join(f'{one.name} = {one.value}' for one in names)} }};\n"


def _dtypes(structs: tuple[Struct, ...]) -> set[str]:
    fields = [field for one in structs for field in one.fields.values()]
    return {field.dtype for field in fields if isinstance(field, Array)}


def c_header(
    file: str,
    declared: Mapping[str, tuple[Struct, ...]],
    records: Mapping[str, Mapping[str, str]],
    enums: Mapping[str, type[IntEnum]],
) -> str:
    """The header `<file>_arguments.h`, of the structs of a file and of those they are made of."""
    home = {struct.name: one for one, structs in declared.items() for struct in structs}
    wanted = {home[part] for struct in declared[file] for part in struct.parts()} - {file}
    others = "".join(f'#include "{one}_arguments.h"\n' for one in sorted(wanted))
    texts = "".join(struct.c_definition() for struct in declared[file])
    used = _dtypes(declared[file]) - {name for one in wanted for name in _dtypes(declared[one])}
    texts = "".join(_c_record(name, records[name]) for name in records if name in used) + texts
    texts += _c_enum(enums[file]) if file in enums else ""
    return f"/* Made of declarations.py. */\n#pragma once\n{others}{texts}"


# -- functions of Python that fill structs --------------------------------------------------------

_CONTIGUOUS, ALIGNED, WRITEABLE = 1, 256, 1024
"""Bits of NumPy's `flags.num`."""


def filler_text(
    struct: Struct, helpers: Collection[str], sizes: Mapping[str, int]
) -> tuple[str, str]:
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
        lines += [f"if not ({text}):", f" raise _together(_layout, {text!r}, locals())"]
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
    flags = _CONTIGUOUS | ALIGNED | (WRITEABLE if field.written else 0)
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
