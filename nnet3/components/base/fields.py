"""Tables of the persistent fields of components, and the two loops that read and write them.

Kaldi's files are sequences of `<Token>` and value. Tokens came and went with its versions; a
component remembers where the file it came from differs from what Kaldi writes today, so that an
unedited component is written back byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, overload

import numpy as np

from ....kaldi.files.kaldi_io import Reader, Writer
from ...language.config import REQUIRED

Value = TypeVar("Value")


@dataclass(frozen=True)
class Kind(Generic[Value]):
    """How a value is read and written.

    Attributes:
        name: of the kind, as the dialect of descriptions knows it.
        type: the annotation of attributes that hold such a value.
        read: gives the value at a reader.
        write: writes a value.
    """

    name: str
    type: Any
    read: Callable[[Reader], Value]
    write: Callable[[Writer, Value], None]


def _ints(reader: Reader) -> list[int]:
    return reader.read_int_vector().tolist()


def _pairs(reader: Reader) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in reader.read_int_pairs()]


def _vector(reader: Reader) -> np.ndarray:
    with np.errstate(over="ignore"):  # a double that no float can hold becomes infinite
        return reader.read_vector(np.float32)


def _matrix(reader: Reader) -> np.ndarray:
    with np.errstate(over="ignore"):
        return reader.read_matrix(np.float32)


INT: Final = Kind("int", int, Reader.read_int32, Writer.write_int32)
FLOAT: Final = Kind("float", float, Reader.read_float, Writer.write_float)
DOUBLE: Final = Kind("double", float, Reader.read_double, Writer.write_double)
BOOL: Final = Kind("bool", bool, Reader.read_bool, Writer.write_bool)
VECTOR: Final = Kind("vector", np.ndarray, _vector, Writer.write_vector)
MATRIX: Final = Kind("matrix", np.ndarray, _matrix, Writer.write_matrix)
DOUBLE_VECTOR: Final = Kind(
    "vector", np.ndarray, lambda r: r.read_vector(np.float64), Writer.write_vector
)
DOUBLE_MATRIX: Final = Kind(
    "matrix", np.ndarray, lambda r: r.read_matrix(np.float64), Writer.write_matrix
)
INTS: Final = Kind(
    "ints", list[int], _ints, lambda w, v: w.write_int_vector(np.asarray(v, np.int32))
)
PAIRS: Final = Kind(
    "pairs",
    list[tuple[int, int]],
    _pairs,
    lambda w, v: w.write_int_pairs(np.asarray(v, np.int32).reshape(-1, 2)),
)
FLAG: Final = Kind("flag", bool, lambda r: True, lambda w, v: None)  # a token alone says "true"
MARK: Final = Kind("mark", None, lambda r: None, lambda w, v: None)  # a token alone, always there


@dataclass(frozen=True, init=False)
class Field:
    """A token and the values after it.

    Args:
        token: comes before the values: `<InputDim>`.
        kind: of each value.
        attrs: the attributes of the component that hold the values, in order.
        default: the value where the token is missing, or a function of the component that returns
            it; without a default the token must be there.
        when: Kaldi writes the field only if this holds of the component.
        old: Kaldi reads the field but writes it no more. Without `attrs` its values are kept only
            to be written back.
        older: a token (with values) that older files have in place of this one.
    """

    token: str
    kind: Kind
    attrs: tuple[str, ...]
    default: Any
    when: Callable[[Any], bool] | None
    old: bool
    older: Field | None

    def __init__(
        self,
        token: str,
        kind: Kind,
        *attrs: str,
        default: Any = REQUIRED,
        when: Callable[[Any], bool] | None = None,
        old: bool = False,
        older: Field | None = None,
    ) -> None:
        values = (token, kind, attrs, default, when, old, older)
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def optional(self) -> bool:
        """Whether files may lack it."""
        return self.old or self.default is not REQUIRED

    def is_written_today(self, component: Any) -> bool:
        """Whether Kaldi writes it."""
        if self.kind is FLAG:
            return bool(getattr(component, self.attrs[0]))
        return not self.old and (self.when is None or self.when(component))


@dataclass(frozen=True)
class Deviation:
    """A field that the file had, or lacked, unlike the files that Kaldi writes today."""

    field: Field | None  # None: the file lacked it
    values: tuple[Any, ...]


class FieldHolder(Protocol):
    """An object with fields in files: a component."""

    deviations: dict[int, Deviation]
    was_binary: bool | None


def read_fields(component: FieldHolder, reader: Reader, fields: Sequence[Field]) -> None:
    """Read the fields from the reader's place on, and set the attributes of `component`.

    Raises:
        FormatError: a token that is not expected, or a bad value.
    """
    read: dict[int, tuple[Field, tuple[Any, ...]]] = {}
    for index, field in enumerate(fields):
        token = reader.peek_token()
        used = next((f for f in (field, field.older) if f is not None and f.token == token), None)
        if used is None:
            if not field.optional:
                reader.expect_token(field.token, *([field.older.token] if field.older else []))
            if not field.old:
                default = field.default(component) if callable(field.default) else field.default
                for attr in field.attrs:
                    setattr(component, attr, default)
            continue
        reader.read_token()
        values = tuple(used.kind.read(reader) for _ in used.attrs or (None,))
        kept = list(values)
        for i, attr in enumerate(used.attrs):
            setattr(component, attr, values[i])
            if isinstance(getattr(type(component), attr, None), Averaged):
                kept[i] = _float32(values[i])
        read[index] = used, tuple(kept)
    component.deviations = {}
    component.was_binary = reader.binary
    for index, field in enumerate(fields):
        used, values = read.get(index, (None, ()))
        if used is None and field.is_written_today(component):
            values = tuple(getattr(component, attr) for attr in field.attrs)
            component.deviations[index] = Deviation(None, values)
        elif used is not None and (used is not field or not field.is_written_today(component)):
            component.deviations[index] = Deviation(used, values)


def _float32(values: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32)


def write_fields(component: FieldHolder, writer: Writer, fields: Sequence[Field]) -> None:
    """Write the fields as Kaldi does, or, where nothing was changed, as the file had them.

    In another form (text or binary) than the file's, averages follow from their sums.
    """
    anew = component.was_binary not in (None, writer.binary)
    for index, field in enumerate(fields):
        deviation = component.deviations.get(index)
        if deviation is not None and _unchanged(component, field, deviation):
            if deviation.field is not None:
                _write(writer, deviation.field, deviation.values)
        elif field.is_written_today(component):
            _write(writer, field, tuple(_value(component, attr, anew) for attr in field.attrs))


def _value(component: Any, attr: str, anew: bool) -> Any:
    averaged = getattr(type(component), attr, None)
    if anew and isinstance(averaged, Averaged):
        return averaged.compute(component)
    return getattr(component, attr)


def _unchanged(component: Any, field: Field, deviation: Deviation) -> bool:
    attrs = (deviation.field or field).attrs
    now = (getattr(component, attr) for attr in attrs)
    return all(np.array_equal(a, b) for a, b in zip(now, deviation.values, strict=False))


def _write(writer: Writer, field: Field, values: tuple[Any, ...]) -> None:
    writer.write_token(field.token)
    for value in values:
        field.kind.write(writer, value)


class Averaged:
    """An attribute that files hold as an average, of a sum that the component holds.

    Reading it gives the average, in float32: exactly what the file held as long as sum and count
    are unchanged. `compute` gives what Kaldi writes: rounded a second time. `read_fields` sets it
    before the count is known; `settle` then computes the sum.

    Args:
        total: the attribute with the sum (float64).
        count: gives the divisor from the component.
        to_average: gives the average from (component, sum, divisor); by default sum / divisor.
        to_sum: the inverse, from (component, average in float64, divisor).
    """

    def __init__(
        self,
        total: str,
        count: Callable[[Any], float] = lambda c: c.count,
        to_average: Callable[[Any, np.ndarray, float], np.ndarray] | None = None,
        to_sum: Callable[[Any, np.ndarray, float], np.ndarray] | None = None,
    ) -> None:
        self.total = total
        self.count = count
        self.to_average = to_average or _average
        self.to_sum = to_sum or _sum

    def __set_name__(self, owner: type, name: str) -> None:
        self.as_read = f"_{name}_as_read"
        self.pending = f"_{name}_pending"

    def __set__(self, component: Any, value: np.ndarray) -> None:
        component.__dict__[self.as_read] = _float32(value), None, 0.0
        component.__dict__[self.pending] = np.asarray(value, np.float64)

    @overload
    def __get__(self, component: None, owner: type) -> Averaged: ...

    @overload
    def __get__(self, component: object, owner: type) -> np.ndarray: ...

    def __get__(self, component: Any, owner: type) -> Averaged | np.ndarray:
        if component is None:
            return self
        total = getattr(component, self.total)
        count = self.count(component)
        read = component.__dict__.get(self.as_read)
        if read is not None and read[2] == count and np.array_equal(read[1], total):
            return read[0]
        return self.compute(component)

    def compute(self, component: Any) -> np.ndarray:
        """The average as it follows from sum and count."""
        return self.to_average(component, getattr(component, self.total), self.count(component))

    def settle(self, component: Any) -> None:
        """Compute the sum from the average that was set."""
        average = component.__dict__[self.as_read][0]
        count = self.count(component)
        total = self.to_sum(component, component.__dict__.pop(self.pending), count)
        setattr(component, self.total, total)
        component.__dict__[self.as_read] = average, total.copy(), count


def settle(component: Any) -> None:
    """Compute all sums of `component` from the averages that were read, in the order written."""
    for owner in reversed(type(component).__mro__):
        for value in vars(owner).values():
            if isinstance(value, Averaged):
                value.settle(component)


def _average(component: Any, total: np.ndarray, count: float) -> np.ndarray:
    average = total.astype(np.float32)
    if count != 0:
        average *= np.float32(1.0 / count)
    return average


def _sum(component: Any, average: np.ndarray, count: float) -> np.ndarray:
    return average * count
