"""Native functions take what is declared, and refuse all else when they are bound."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.errors import ArgumentError
from opscope.framework.fusion.compiled import arguments
from opscope.framework.fusion.compiled.arguments import Block, Several, bind, dtype_of
from opscope.native.arguments import (
    COUNT,
    REAL,
    Address,
    Array,
    Field,
    Inner,
    Real,
    Step,
    Struct,
    Structs,
    Whole,
    constants,
    reads,
)
from opscope.native.declarations import DECLARED

pytestmark = pytest.mark.quick

_CASES = [(file, struct) for file, structs in DECLARED.items() for struct in structs]
_MOST = 6
"""The largest sizes."""
_ALL_SMALL, _GIVEN_ALL, _MOST_ATTEMPTS = 200, 1_000, 20_000
"""Draws of which no field has room; in which all arrays are given; after which none suits."""
_ROOM = 1 << 13
"""Of a field that must be larger than what is drawn."""
_TOO_SMALL = re.compile(r"wants (?:.* <= (\w+)|(\w+) >= \d+), not ")


class Known:
    """A library that knows its numbers and has no functions."""

    def __init__(self, file: str, dtype: str = "float32") -> None:
        self.file, self.dtype = file, dtype

    def constant(self, name: str) -> int:
        return 6 if name == "panel" else 4

    def address(self, name: str) -> int:
        return 1


def drawn(rng: np.random.Generator, name: str) -> Block:
    """A part of an argument."""
    file, struct = next((f, s) for f, ss in DECLARED.items() for s in ss if s.name == name)
    library: Any = Known(file)
    return bind(library, name, **draw(rng, library, struct))


def draw(rng: np.random.Generator, library: Any, struct: Struct) -> dict[str, Any]:
    """Values that suit a declaration, with arrays as small as they may be."""
    fields = struct.fields
    room: set[str] = set()
    for attempt in range(_MOST_ATTEMPTS):
        values: dict[str, Any] = {}
        for name, field in fields.items():
            if getattr(field, "made", False):
                continue
            if name in room:
                values[name] = _ROOM
            elif isinstance(field, Whole):
                least = max(field.least, 0)
                values[name] = int(rng.integers(least, min(field.most, least + _MOST) + 1))
            elif isinstance(field, Step):
                values[name] = int(rng.integers(1, _MOST))
            elif isinstance(field, Real):
                values[name] = 0.5
            elif isinstance(field, Address):
                values[name] = 64
            elif isinstance(field, Inner):
                values[name] = drawn(rng, field.struct)
            elif isinstance(field, Array):
                # All are given where that can be: some structs take one of two alone.
                given = not (field.optional and attempt >= _GIVEN_ALL and rng.integers(2))
                array = np.zeros(1 << 16, dtype_of(field, library) or np.uint8)
                values[name] = array if given else None
            elif isinstance(field, Structs):
                values[name] = Several.of([drawn(rng, field.struct)] * 40)
        try:
            bind(library, struct.name, **values)
        except ArgumentError as error:
            assert ": wants " in str(error), error  # what must hold of several fields
            if attempt >= _ALL_SMALL and (small := _TOO_SMALL.search(str(error))):
                room.add(small[1] or small[2])
            continue
        return values | smallest(library, struct, values)
    raise AssertionError(f"no values were drawn that suit {struct.name}")


def smallest(library: Any, struct: Struct, values: dict[str, Any]) -> dict[str, Any]:
    """The arrays of some values, each as short as it may be."""
    known = arguments._HELPERS | dict.fromkeys(struct.fields) | values
    known |= {name: one.struct for name, one in values.items() if isinstance(one, Block)}
    for name in constants(struct, arguments._HELPERS):
        known[name] = library.constant(name)
    found = {}
    for name, field in struct.fields.items():
        if isinstance(field, Array) and values[name] is not None:
            itemsize = 4 if field.dtype == "packed" else 1
            found[name] = values[name][: reach(field.sizes, known) * itemsize]
    return found


def reach(sizes: str, known: dict[str, Any]) -> int:
    """Elements of an array of declared sizes, from the first to the last."""
    inner = last = 1
    for one in reversed(sizes.split()):
        size, _, step = one.partition(":")
        count = eval(size, known)
        if not count:
            return 0
        last += (count - 1) * (eval(step, known) if step else inner)
        inner *= count
    return last


def wrong(name: str, field: Field, value: Any, library: Any) -> Iterator[Any]:
    """Values that a field cannot take."""
    if getattr(field, "made", False):
        return
    if isinstance(field, Whole | Step | Address):
        yield from ("1", 1.5, None if isinstance(field, Whole) else [])
    if isinstance(field, Whole):
        yield from (field.least - 1, field.most + 1)
    if isinstance(field, Real):
        yield from ("much", None)
    if isinstance(field, Array) and value is not None:
        yield from (value.tolist(), 0, value.ctypes.data)
        if not field.optional:
            yield None
        if dtype_of(field, library) is not None:
            yield from (np.zeros(value.size, dtype) for dtype in (np.int16, "S1"))
        if len(value):
            yield from (value[:-1], value[::-1][1:] if len(value) > 1 else value[:0])
        if field.written:
            kept = value.copy()
            kept.flags.writeable = False
            yield kept


@pytest.mark.parametrize(("file", "struct"), _CASES, ids=[f"{f}.{s.name}" for f, s in _CASES])
def test_only_what_is_declared_is_bound(file: str, struct: Struct) -> None:
    rng, library = np.random.default_rng(0), Known(file)
    for _ in range(3):
        values = draw(rng, library, struct)
        bound = bind(library, struct.name, **values)
        assert bytes(bind(library, struct.name, **values).struct) == bytes(bound.struct)
        for name, field in struct.fields.items():
            for value in wrong(name, field, values.get(name), library):
                with pytest.raises(ArgumentError, match=rf"{file}.{struct.name}: {name} wants "):
                    bind(library, struct.name, **values | {name: value})
    lacking = dict(values)
    name = lacking.popitem()[0] if lacking else ""
    if name in arguments._layout(file, struct.name).needed:
        with pytest.raises(ArgumentError, match=f"it lacks {name}"):
            bind(library, struct.name, **lacking)
    with pytest.raises(ArgumentError, match="it has no nothing"):
        bind(library, struct.name, **values, nothing=1)


def test_a_block_keeps_what_it_points_to() -> None:
    """Another thread may take memory while a function runs; it once took that of its arguments."""
    arrays = {"x": np.zeros((4, 6), np.float32), "out": np.zeros(6, np.float32)}
    alive = [weakref.ref(array) for array in arrays.values()]
    block = bind(Known("column_sums"), "sums", rows=4, columns=6, **arrays)
    arrays.clear()
    assert all(array() is not None for array in alive)
    del block
    assert not any(array() is not None for array in alive)


def test_layouts_are_looked_at() -> None:
    library, x = Known("column_sums"), np.zeros((4, 6), np.float32)
    sizes = {"rows": 4, "columns": 3, "out": np.zeros(3, np.float32)}
    block = bind(library, "sums", x=x[:, :3], **sizes)
    assert block.struct.step == 6 and block.struct.x == x.ctypes.data
    other = x.copy()
    assert bind(library, "sums", x=other[:, :3], **sizes).struct.x == other.ctypes.data
    with pytest.raises(ArgumentError, match=r"rows wants a whole number, not 4\.0"):
        bind(library, "sums", x=x[:, :3], **sizes | {"rows": 4.0})
    bind(library, "sums", x=x[::-1, :3], **sizes)  # rows from the last to the first
    for bad, told in ((x[:, ::2], "side by side"), (x[:3, :3], "strides"), (x.T, "side by side")):
        with pytest.raises(ArgumentError, match=told):
            bind(library, "sums", x=bad, **sizes)
    odd = np.zeros(100, np.uint8)[1:97].view(np.float32)
    with pytest.raises(ArgumentError, match="aligned"):
        bind(library, "sums", x=odd, **sizes)


def test_a_form_is_that_of_each_field() -> None:
    """What was bound before with another of the same arrays left out is another form."""
    array = reads("n", optional=True)
    layout = arguments.Layout("f", "g", Struct("g", n=COUNT, a=array, b=array))
    x = np.zeros(3, np.float32)
    library: Any = Known("f")
    for one, other in ((x, None), (None, x), (x, x), (x.copy(), None), (None, x.copy())):
        struct = layout.bind(library, {"n": 3, "a": one, "b": other}).struct
        assert [struct.a, struct.b] == [0 if v is None else v.ctypes.data for v in (one, other)]


def test_minus_zero_is_another_number() -> None:
    layout = arguments.Layout("f", "g", Struct("g", factor=REAL))
    library: Any = Known("f")
    for factor in (0.0, -0.0, 0.0):
        bound = layout.bind(library, {"factor": factor}).struct.factor
        assert np.signbit(bound) == np.signbit(factor)
