"""The arguments of native functions, filled by keyword and checked when they are bound.

What a function takes is declared in native/declarations.py; native/arguments.py shows how a new one
is declared and bound. A `Block` is a C struct with all that its addresses point to. It is made once
and runs many times: nothing here is done, or looked at, while functions run.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from struct import Struct as Form
from typing import Any

import numpy as np

from ....native.arguments import (
    Array,
    Field,
    Inner,
    Real,
    Rest,
    Struct,
    Structs,
    filler_text,
    may_lack,
)
from ....native.declarations import DECLARED, RECORDS
from ...base.errors import ArgumentError
from ...base.sizes.dims import Dim
from .libraries import Library

DTYPES = {name: np.dtype([*fields.items()], align=True) for name, fields in RECORDS.items()}
"""The dtypes of records that C files have."""


class NotTracedError(Exception):
    """Something that a trace cannot hold for other shapes."""


class Standing:
    """What stands for an array while a binding is traced (see laid.py)."""

    end: Any


def is_host_array(array: Any) -> bool:
    """Whether native functions may be bound to it: an array of NumPy, or what stands for one."""
    return type(array) is np.ndarray or isinstance(array, Standing)


def is_traced(array: Any) -> bool:
    """Whether it stands for an array."""
    return isinstance(array, Standing)


class _Tracing(threading.local):
    """What a thread traces bindings with; None where it binds (see
    runtime/other_shapes/rebinding.py)."""

    trace: Any = None


TRACING = _Tracing()


class Block:
    """The argument of native functions, checked, with all that its addresses point to.

    Attributes:
        name: of the function that it was bound for, or of the part that it is.
        struct: its fields. Numbers may be changed, and read where C writes them.
        address: where it lies.
        memory: owners of what it points to.
    """

    __slots__ = ("_library", "address", "memory", "name", "struct")

    def __init__(self, library: Library, name: str, struct: Any, memory: list[Any]) -> None:
        self.struct = struct
        self.memory = memory
        self.address = ctypes.addressof(struct)
        self._library = library
        self.name = name

    @property
    def type(self) -> Any:
        """The struct that it is."""
        return type(self.struct)

    @property
    def item(self) -> tuple[int, int]:
        """The function that it was bound for, and the block: an item of a list of team.py."""
        return self._library.addresses[self.name], self.address

    def address_of(self, field: str) -> Any:
        """Where a field lies."""
        return self.address + getattr(self.type, field).offset

    def item_of(self, name: str) -> tuple[int, int]:
        """An item of another function that takes the same argument."""
        return self._library.addresses[name], self.address

    def run(self) -> None:
        """Call the function, which takes an address alone."""
        self._library.function(self.name)(self.address)


@dataclass(frozen=True)
class Places:
    """Where each of several structs has its part of one array.

    Attributes:
        array: of NumPy. offsets: bytes from its begin to each part.
    """

    array: Any
    offsets: Any


class Several:
    """Structs that lie one after the other: the value of a field that is `Structs`.

    Attributes:
        name: of the struct. words: [structs, fields], int64. address: where they lie.
        memory: as of `Block`.
    """

    __slots__ = ("address", "memory", "name", "words")

    def __init__(self, name: str, words: np.ndarray, memory: list[Any]) -> None:
        self.name = name
        self.words = words
        self.memory = memory
        self.address = words.ctypes.data

    def __repr__(self) -> str:
        return f"{len(self)} of {self.name}"

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Several:
        """Parts that were bound one by one."""
        if TRACING.trace is not None:
            return TRACING.trace.several(blocks)
        if len(blocks) == 1:
            (block,) = blocks
            return cls(block.name, np.frombuffer(block.struct, np.int64)[None], [block.memory])
        rows = [np.frombuffer(block.struct, np.int64) for block in blocks]
        return cls(blocks[0].name, np.stack(rows), [block.memory for block in blocks])

    @classmethod
    def items(cls, items: Sequence[tuple[int, int]]) -> Several:
        """The items of a list: functions with their arguments, whose owners the caller keeps."""
        if TRACING.trace is not None:
            return TRACING.trace.list_of(items)
        return cls("item", np.array(items, np.int64).reshape(-1, 2), [])

    @classmethod
    def joined(cls, groups: Sequence[Several]) -> Several:
        """Those of several groups."""
        words = np.concatenate([group.words for group in groups])
        return cls(groups[0].name, words, [group.memory for group in groups])


def bind(library: Library, function: str, /, **values: Any) -> Block:
    """The argument of a function of a library.

    Args:
        values: of the fields, by name: numbers, arrays, None for arrays that are not there; a part
            is the block of one, `Several` are those that lie one after the other.

    Raises:
        ArgumentError: one is missing, unknown, out of bounds, of another dtype or layout, or too
            small; the message names function and field, what is wanted and given.
    """
    return _layout(library.file, function).bind(library, values)


def several(library: Library, name: str, count: int, /, **values: Any) -> Several:
    """So many structs that differ in the places of their arrays alone.

    Args:
        values: as of `bind`; `Places` of an array where each struct has another one.
    """
    layout = _layout(library.file, name)
    if TRACING.trace is not None:
        places = {n: v for n, v in values.items() if isinstance(v, Places)}
        blocks = []
        for number in range(count):
            own = {n: v.array.moved(v.offsets[number]) for n, v in places.items()}
            blocks.append(layout.bind(library, {**values, **own}))
        return Several.of(blocks)
    first = {n: v.array if isinstance(v, Places) else v for n, v in values.items()}
    places = {
        n: np.asarray(v.offsets, np.int64) for n, v in values.items() if isinstance(v, Places)
    }
    struct, memory = layout.fill(library, first, places)
    words = np.tile(np.frombuffer(struct, np.int64), (count, 1))
    for field, offsets in places.items():
        words[:, getattr(layout.type, field).offset // 8] += offsets
    return Several(name, words, memory)


def lists_of_items(
    library: Library, items: Sequence[Sequence[tuple[int, int]]], work: Sequence[int]
) -> Several:
    """A `list` of the team for each sequence of items, all made at once: a loop has thousands.

    Nothing is checked: the items are functions and arguments that were bound before.
    """
    numbers = chain.from_iterable(chain.from_iterable(items))
    words = np.fromiter(numbers, np.int64).reshape(-1, 2)
    counts = np.fromiter(map(len, items), np.int64, len(items))
    begins = words.ctypes.data + words.strides[0] * (np.cumsum(counts) - counts)
    return lists_at(library, begins, counts, work, words)


def lists_at(library: Library, begins: Any, counts: Any, work: Any, items: Any) -> Several:
    """As `lists_of_items`, of items that lie in an array.

    Args:
        begins: addresses of the first ones. counts: how many each list has.
    """
    given = {"count": counts, "work": work, "items": begins}
    fields = _layout(library.file, "opscope_alone").stored
    # An array of the struct's own type took NumPy longer than all else of a list.
    words = np.empty((len(counts), len(fields)), np.int64)
    for at, name in enumerate(fields):
        words[:, at] = given[name]
    return Several("list", words, [items])


def grid(counts: Sequence[int], steps: Sequence[int], first: int = 0) -> Any:
    """Places of a grid's points, row by row: that of the first one, and sums of each axis' number
    times its step, int64."""
    if TRACING.trace is not None:
        return TRACING.trace.grid(counts, steps, first)
    return grid_of(first, *counts, *steps)


def made_array(
    make: Callable[..., Any], dtype: Any, count: int, *sizes: Any, offsets: Sequence[Any] = ()
) -> Any:
    """An array [count] that is made for sizes, and is the same for the same ones.

    Args:
        make: called with the offsets, and the sizes.
        offsets: of sequences, as a frame has them.
    """
    if TRACING.trace is not None:
        return TRACING.trace.array(make, dtype, count, sizes, offsets)
    return make(*offsets, *sizes)


def made(make: Callable[..., Any], names: Sequence[str], /, *args: Any) -> Any:
    """What is made for sizes, and is the same for the same ones.

    Args:
        make: called with the others, of which the last is a tuple of the sizes.
        names: of its attributes that arguments of functions have.
    """
    if TRACING.trace is not None:
        return TRACING.trace.made(make, names, args)
    return make(*args)


_GRIDS: weakref.WeakValueDictionary[tuple[int, ...], Any] = weakref.WeakValueDictionary()
"""Grids that some frame holds: layers of a net ask for the same ones."""


def grid_of(*sizes: int) -> np.ndarray:
    """As `grid`: its first place, its counts, and its steps."""
    places = _GRIDS.get(sizes)
    if places is None:
        places = _GRIDS[sizes] = made_grid(*sizes)
    return places


def made_grid(*sizes: int) -> np.ndarray:
    """As `grid_of`, anew: for whoever asks for the grids of a new shape, which no frame holds."""
    half = 1 + len(sizes) // 2
    axes: list[tuple[int, int]] = []
    for count, step in zip(sizes[1:half], sizes[half:], strict=True):
        if axes and axes[-1][1] == count * step:  # both axes are one
            axes[-1] = axes[-1][0] * count, step
        elif count != 1:
            axes.append((count, step))
    first, places = sizes[0], None
    for count, step in axes or [(1, 1)]:
        end = first + count * step
        if step:
            line = np.arange(first, end, step, dtype=np.int64)
        else:
            line = np.full(count, first, np.int64)
        places = line if places is None else np.add.outer(places, line).reshape(-1)
        first = 0
    assert places is not None
    places.flags.writeable = False
    return places


def fill_grids(library: Library, sizes: np.ndarray, places: np.ndarray) -> None:
    """As `made_grid`, of several at once, one after the other.

    Args:
        sizes [grids, 1 + 2 axes]: of each its first place, its counts, and its steps; a count of 1
            is no axis.
        places: int64, as many as all grids have, or more.
    """
    axes = sizes.shape[1] // 2
    given = {"grids": len(sizes), "axes": axes, "sizes": sizes, "places": places}
    bind(library, "opscope_grids", count=len(places), **given).run()


@functools.cache
def declared(file: str, name: str) -> Struct:
    """What a function of a file takes, or a part of that."""
    own = {one: struct for struct in DECLARED[file] for one in struct.functions}
    if any(name in struct.parts() for struct in DECLARED[file]):
        return _part_of(name)
    if name not in own:
        raise ArgumentError(f"native function {file}.{name} is not declared")
    return own[name]


@functools.cache
def _part_of(name: str) -> Struct:
    """A struct that others are made of, whose name no other has."""
    (struct,) = (s for structs in DECLARED.values() for s in structs if s.name == name)
    return struct


@functools.cache
def _layout(file: str, name: str) -> Layout:
    return Layout(file, name, declared(file, name))


@functools.cache
def _c_struct(struct: Struct) -> Any:
    """The ctypes structure of a declaration."""
    own = [item for item in struct.fields.items() if not isinstance(item[1], Rest)]
    fields = [(one, _c_type(field)) for one, field in own]
    return type(struct.name, (ctypes.Structure,), {"_fields_": fields})


def _c_type(field: Field) -> Any:
    if isinstance(field, Real):
        return ctypes.c_double
    if isinstance(field, Inner):
        return _c_struct(_part_of(field.struct))
    return ctypes.c_int64  # addresses, too, wherever they have fewer bytes


def _whole(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def end_of(array: Any, field: str = "") -> int:
    """One more than the largest number in an array of places, or in a field of its records."""
    if isinstance(array, Standing):
        return array.end
    if field and type(array) is np.ndarray and field in (array.dtype.names or ()):
        array = array[field]
    if type(array) is not np.ndarray or not array.size or array.dtype.kind != "i":
        return 0  # an array of another dtype is refused for that
    # No memory is large enough for places before its begin.
    return int(array.max()) + 1 if array.min() >= 0 else 1 << 62


def _spread(array: Any, count: int) -> int:
    return count if array is None else end_of(array)


def _span(image: Any) -> int:
    """Elements of one image of native/images.h."""
    if image.copied:
        return image.room
    sizes = image.channels, image.height, image.width
    steps = image.down, image.row, image.pixel
    return 1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))


def _reach(*pairs: int) -> tuple[int, int]:
    """The first and the last element, and one, of dimensions: sizes and steps in turn."""
    low = high = 0
    for size, step in zip(pairs[::2], pairs[1::2], strict=True):
        if size <= 0:
            return 0, 0
        if step < 0:
            low += (size - 1) * step
        else:
            high += (size - 1) * step
    return low, high + 1


_HELPERS = {
    "whole": _whole,
    "end": end_of,
    "given": lambda *arrays: all(array is not None for array in arrays),
    "spread": _spread,
    "span": _span,
    "reach": _reach,
}


_NONE: Mapping[str, np.ndarray] = {}


@functools.cache
def _filler_code(struct: Struct) -> tuple[str, Any]:
    """How a struct is laid out, and the code that defines its filler: compiled once for both."""
    parts = {n: f for n, f in struct.fields.items() if isinstance(f, Inner)}
    sizes = {n: ctypes.sizeof(_c_struct(_part_of(f.struct))) for n, f in parts.items()}
    form, text = filler_text(struct, frozenset(_HELPERS), sizes)
    return form, compile(text, f"<{struct.name}>", "exec")


@functools.cache
def _filler(struct: Struct, traced: bool = False) -> Callable[..., tuple[Any, list[Any]]]:
    """The function that fills a struct; see native/arguments.py.

    Args:
        traced: it returns the words as they were given, `Dim`s among them.
    """
    form, code = _filler_code(struct)
    arrays = [field for field in struct.fields.values() if isinstance(field, Array)]
    dtypes = {field.dtype: _of_name(field.dtype) for field in arrays}
    names: dict[str, Any] = {"_fields": struct.fields, "_dtype": _dtype, "_dtypes": dtypes}
    names |= {"_ndarray": np.ndarray, "_pack": Form(form).pack, **_HELPERS}
    names["_together"] = Layout.refuse_together
    if traced:
        names |= {"_ndarray": None, "_pack": lambda *words: words, "bytes": lambda part: part}
    exec(code, names)  # noqa: S102 - text of our own
    return names["fill"]


class Layout:
    """A declaration, made ready for filling.

    Args:
        name: of the function that it is for.

    Attributes:
        type: the struct in Python. stored: names of its fields, in order.
    """

    def __init__(self, file: str, name: str, struct: Struct) -> None:
        self.name = name
        self.title = f"native function {file}.{name}"
        self.type = _c_struct(struct)
        fields = struct.fields
        self.given = {n for n, f in fields.items() if not getattr(f, "made", False)}
        self.needed = {n for n in self.given if not may_lack(fields[n])}
        self.struct = struct
        self.stored = [n for n, f in fields.items() if not isinstance(f, Rest)]
        self._fill = _filler(struct)

    def refuse(self, name: str, wanted: str, given: str) -> ArgumentError:
        return ArgumentError(f"{self.title}: {name} wants {wanted}, not {given}")

    def bind(self, library: Library, values: Mapping[str, Any]) -> Block:
        """The argument of the function in a library; see `arguments.bind`."""
        if TRACING.trace is not None:
            return TRACING.trace.block(self, library, values)
        return Block(library, self.name, *self.fill(library, values))

    def fill(
        self, library: Library, values: Mapping[str, Any], places: Mapping[str, np.ndarray] = _NONE
    ) -> tuple[Any, list[Any]]:
        """The struct, and the owners of what it points to.

        Args:
            places: of arrays that serve several structs: bytes to the part of each.
        """
        if not self.needed <= values.keys() <= self.given:
            self._refuse_names(values)
        data, memory = self._fill(self, library, places, **values)
        return self.type.from_buffer_copy(data), memory

    def trace(self, library: Library, values: Mapping[str, Any]) -> tuple[Sequence[Any], list[Any]]:
        """As `fill`, of values that may be traced: the words as they were given."""
        return _filler(self.struct, True)(self, library, _NONE, **values)

    def _refuse_names(self, values: Mapping[str, Any]) -> None:
        lacking = self.needed - values.keys()
        unknown = values.keys() - self.given
        problems = [f"it lacks {', '.join(sorted(lacking))}"] if lacking else []
        problems += [f"it has no {', '.join(sorted(unknown))}"] if unknown else []
        raise ArgumentError(f"{self.title}: {'; '.join(problems)}")

    # -- what `fill` asks where a value is not plainly right -----------------------------------

    def lacks(self, name: str) -> int:
        """An array that must be there is not."""
        raise self.refuse(name, "an array", "None")

    def refuse_together(self, text: str, known: Mapping[str, Any]) -> ArgumentError:
        """What must hold of several fields does not."""
        names = compile(text, self.title, "eval").co_names
        given = ", ".join(f"{n}={known[n]}" for n in names if isinstance(known.get(n), int))
        return ArgumentError(f"{self.title}: wants {text}, not {given}")

    def part(self, name: str, struct: str, value: Any) -> Any:
        """The struct of a part."""
        if not isinstance(value, Block) or value.type is not _c_struct(_part_of(struct)):
            raise self.refuse(name, f"a part {struct}", repr(value))
        return value.struct

    def several(self, name: str, field: Structs, group: Any, count: int) -> int:
        """Where structs lie."""
        if group is None and field.optional:
            return 0
        if not isinstance(group, Several) or group.name != field.struct or len(group) < count:
            raise self.refuse(name, f"{count} of {field.struct}", repr(group))
        return group.address

    def step(self, name: str, array: Any, axis: int) -> int:
        """The step of an array's axis; 0 where there is no such axis."""
        if array is None or getattr(array, "ndim", 0) < -axis:
            return 0
        if array.strides[axis] % array.itemsize:
            raise self.refuse(name, "rows whole elements apart", f"{array.strides} bytes")
        return array.strides[axis] // array.itemsize

    def whole(self, name: str, least: int, most: int, value: Any) -> int:
        """A whole number within bounds."""
        try:
            number: Any = value if isinstance(value, Dim) else operator.index(value)
        except TypeError:
            raise self.refuse(name, "a whole number", repr(value)) from None
        # Of a size that varies, bounds that say nothing would be compared each time.
        high = most if most < 1 << 60 or type(number) is int else number
        if not least <= number <= high:
            bounds = f"from {least} on" if most > 1 << 60 else f"from {least} to {most}"
            raise self.refuse(name, f"a whole number {bounds}", str(number))
        return number

    def real(self, name: str, value: Any) -> float:
        """A number."""
        try:
            return float(value)
        except (TypeError, ValueError):
            raise self.refuse(name, "a number", repr(value)) from None

    def address(self, name: str, value: Any, optional: bool) -> Any:
        """An address; 0 for None."""
        pointer = 0 if value is None and optional else value
        if not isinstance(pointer, (int, Dim)) or not (pointer or optional):
            raise self.refuse(name, "an address", repr(value))
        return pointer

    def place(
        self,
        library: Library,
        name: str,
        field: Array,
        array: Any,
        reach: tuple[int, int],
        offsets: np.ndarray | None,
    ) -> int:
        """Where a checked array begins."""
        wanted = dtype_of(field, library)
        if not is_host_array(array):
            raise self.refuse(name, "an array of NumPy", type(array).__name__)
        if wanted is not None and array.dtype != wanted:
            raise self.refuse(name, str(wanted), str(array.dtype))
        flags = array.flags
        if not flags.aligned or (field.written and not flags.writeable):
            wanted = "writeable memory" if flags.aligned else "aligned memory"
            raise self.refuse(name, wanted, "other")
        if flags.c_contiguous:
            low = 0
            high = array.nbytes
        else:
            last = field.sizes.rpartition(" ")[2]
            side_by_side = array.shape[-1] <= 1 or array.strides[-1] == array.itemsize
            if not side_by_side and ":" not in last:
                raise self.refuse(name, "elements side by side", f"{array.strides} bytes apart")
            pairs = (n for pair in zip(array.shape, array.strides, strict=True) for n in pair)
            low, high = _reach(*pairs)
            high += array.itemsize - 1 if high else 0
        unit = self._unit(field, library, array)
        first, last = (0, 0) if offsets is None else (int(offsets.min()), int(offsets.max()))
        if reach[0] * unit + first < low or reach[1] * unit + last > high:
            raise self._too_small(name, field, array, reach)
        return array.ctypes.data

    def _unit(self, field: Array, library: Library, array: Any) -> int:
        """Bytes of what its sizes count."""
        if field.dtype == "packed":
            return _dtype(library.dtype).itemsize
        return 1 if field.dtype == "bytes" else array.itemsize

    def _too_small(
        self, name: str, field: Array, array: Any, reach: tuple[int, int]
    ) -> ArgumentError:
        what = "bytes" if field.dtype == "bytes" else "elements"
        from_to = f"{reach[1]} {what}" if reach[0] == 0 else f"{what} from {reach[0]} to {reach[1]}"
        given = f"shape {array.shape}, strides {array.strides}"
        return self.refuse(name, f"{from_to} ({field.sizes})", given)


def dtype_of(field: Array, library: Library) -> np.dtype | None:
    """The dtype that an array must have; None for any."""
    return _dtype(library.dtype) if field.dtype == "T" else _of_name(field.dtype)


def _of_name(name: str) -> np.dtype | None:
    """The dtype of a declared array; None where that is any, or the library's."""
    if name in ("T", "packed", "bytes"):
        return None
    return DTYPES.get(name) or _dtype(name)


@functools.cache
def _dtype(name: str) -> np.dtype:
    return np.dtype(name)
