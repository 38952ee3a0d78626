"""The kinds of values that tables hold: how each is read, written and cut to a range.

Source: Kaldi's `util/kaldi-holder.h`, `util/kaldi-holder-inl.h`, `util/kaldi-holder.cc`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import numpy as np

from ...framework.base.errors import FormatError, nearest
from ..files import matrix_io
from ..files.compressed import CompressedMatrix
from ..files.kaldi_io import Reader, Writer
from ..files.posterior import Posterior
from ..files.sparse import read_general_matrix, to_dense, write_general_matrix
from . import KIND_MODULES

_INTEGERS = np.dtype([("size", "u1"), ("value", "<i4")])
_FLOATS = np.dtype([("size", "i1"), ("value", "<f4")])
_INTEGER = re.compile(r"[+-]?\d{1,18}\Z", re.A)
_SPAN = re.compile(r"\s*(\d{1,10}):(\d{1,10})\s*")
# Kaldi allows ends of ranges that are so much too late: times of segments are rounded.
_TOLERANCE = 3


_MATRIX: Final = "a matrix", ("matrix", "array", "general_matrix", "compressed_matrix")
_OPENINGS: Final = {
    **dict.fromkeys(("FM", "DM", "CM", "CM2", "CM3"), _MATRIX),
    **dict.fromkeys(("FV", "DV"), ("a vector", ("vector", "array"))),
    "SM": ("a sparse matrix", ("general_matrix",)),
    "<Nnet3Eg>": ("an example", ("example",)),
    "<Nnet3ChainEg>": ("a chain example", ("chain_example",)),
    "<Nnet3DiscriminativeEg>": ("a discriminative example", ("discriminative_example",)),
    "<Nnet3>": ("a network", ()),
    "<TransitionModel>": ("an acoustic model", ()),
}
"""What values begin with such a token, and the kinds of tables that they may stand in."""


@dataclass(frozen=True)
class Kind:
    """One kind of value.

    Attributes:
        name: its name in `all_kinds()`.
        read: reads a value from a reader that has passed the header.
        write: to a writer that has written the header.
        cut: cuts a value to a range such as `0:9,0:2`, where the kind has ranges.
        header: whether values in binary have Kaldi's header; kinds without one are always text.
        own_header: whether values in binary begin with a header of another kind in its place.
    """

    name: str
    read: Callable[[Reader], Any]
    write: Callable[[Writer, Any], None]
    cut: Callable[[Any, str], Any] | None = None
    header: bool = True
    own_header: bool = False

    def writer(self, binary: bool) -> Writer:
        """A writer for one value, in binary where the kind has it."""
        return Writer(binary and (self.header or self.own_header), header=self.header)

    def read_value(self, reader: Reader) -> Any:
        """Read a value with its header.

        Raises:
            FormatError: the bytes are something else.
        """
        if self.header:
            reader.read_header()
        else:
            reader.binary = False
        begin = reader.offset
        try:
            return self.read(reader)
        except FormatError as error:
            failed = reader.offset
            reader.offset = begin
            other = _OPENINGS.get(reader.peek_token())
            reader.offset = failed
            if other is None or self.name in other[1]:
                raise
            message = f"a value of kind {self.name!r} was expected here, but this is {other[0]}"
            raise reader.error(message, begin) from error

    def part(self, value: Any, span: str) -> Any:
        """The part of `value` that `span` says.

        Raises:
            FormatError: the kind has no parts, or this one goes beyond the value.
        """
        if self.cut is None:
            raise FormatError(f"[{span}]: a table of kind {self.name!r} has no ranges")
        return self.cut(value, span)


def cut_array(value: np.ndarray, span: str) -> np.ndarray:
    """Part of a vector `[a:b]` or of a matrix `[a:b]`, `[a:b,c:d]`, `[:,c:d]`; ends are included.

    Raises:
        FormatError: it is no range, or goes beyond the array (by more than 3 rows).
    """
    pieces = span.split(",")
    if len(pieces) > value.ndim:
        raise FormatError(f"[{span}]: more ranges than the value of {list(value.shape)} has axes")
    slices = []
    for axis, piece in enumerate(pieces):
        size = value.shape[axis]
        match = _SPAN.fullmatch(piece)
        if piece.strip() == ":":
            slices.append(slice(None))
            continue
        if not match:
            raise FormatError(f"[{span}]: {piece!r} is no range like 0:9")
        first, last = int(match[1]), int(match[2])
        if first > last or first >= size or last >= size + (0 if axis else _TOLERANCE):
            raise FormatError(f"[{span}] goes beyond the value of {list(value.shape)}")
        slices.append(slice(first, last + 1))
    return np.ascontiguousarray(value[tuple(slices)])


def _cut_matrix(value: Any, span: str) -> np.ndarray:
    return cut_array(to_dense(value), span)


def _read_integers(reader: Reader) -> np.ndarray:
    """A line of integers, or in binary their number and each of them after its size."""
    start = reader.offset
    if not reader.binary:
        line = reader.read_line().encode("utf-8", "surrogateescape")
        return matrix_io.parse_integers(reader, line, start, 4)
    integers = reader.read_array(_INTEGERS, reader.read_int32())
    if np.any(integers["size"] != 4):
        raise reader.error("integers of 4 bytes were expected here", start)
    return integers["value"].astype(np.int32)


def _write_integers(writer: Writer, value: Any) -> None:
    vector = matrix_io.integer_array(value, 4).ravel()
    if writer.binary:
        writer.write_int32(len(vector))
        integers = np.empty(len(vector), _INTEGERS)
        integers["size"], integers["value"] = struct.calcsize("<i"), vector
        writer.write_raw(integers.tobytes())
    else:
        writer.write_raw(b"%d " * len(vector) % tuple(vector.tolist()) + b"\n")


def _read_integer_rows(reader: Reader) -> list[np.ndarray]:
    """Rows of integers: `1 2 ; 3 ;` on a line, or in binary as vectors after their number."""
    start = reader.offset
    if reader.binary:
        count = reader.read_int32()
        reader.check_left(_INTEGERS.itemsize * count, "rows of integers")
        return [_read_integers(reader) for _ in range(count)]
    *rows, rest = reader.read_line().encode("utf-8", "surrogateescape").split(b";")
    if rest.strip():
        raise reader.error("rows of integers such as '1 2 ; 3 ;' were expected here", start)
    return [matrix_io.parse_integers(reader, row, start, 4) for row in rows]


def _write_integer_rows(writer: Writer, value: Any) -> None:
    rows = [matrix_io.integer_array(row, 4).ravel() for row in value]
    if writer.binary:
        writer.write_int32(len(rows))
        for row in rows:
            _write_integers(writer, row)
    else:
        lines = (b"%d " * len(row) % tuple(row.tolist()) + b"; " for row in rows)
        writer.write_raw(b"".join(lines) + b"\n")


def _read_pairs(reader: Reader) -> np.ndarray:
    """Pairs of integers, [pairs, 2]: `1 2 ; 3 4` on a line, or in binary after their number."""
    start = reader.offset
    if not reader.binary:
        pieces = reader.read_line().split(";")
        words = [piece.split() for piece in pieces] if pieces[0].strip() or pieces[1:] else []
        if not all(len(pair) == 2 and all(map(_INTEGER.match, pair)) for pair in words):
            raise reader.error("pairs of integers such as '1 2 ; 3 4' were expected here", start)
        return matrix_io.integer_array(np.array(words, np.int64).reshape(-1, 2), 4)
    integers = reader.read_array(_INTEGERS, 2 * reader.read_int32())
    if np.any(integers["size"] != 4):
        raise reader.error("integers of 4 bytes were expected here", start)
    return integers["value"].astype(np.int32).reshape(-1, 2)


def _write_pairs(writer: Writer, value: Any) -> None:
    pairs = matrix_io.integer_array(value, 4).reshape(-1, 2)
    if writer.binary:
        writer.write_int32(len(pairs))
        integers = np.empty(pairs.size, _INTEGERS)
        integers["size"], integers["value"] = struct.calcsize("<i"), pairs.ravel()
        writer.write_raw(integers.tobytes())
    else:
        writer.write_raw("; ".join(f"{first} {second} " for first, second in pairs.tolist()) + "\n")


def _read_float_pairs(reader: Reader) -> np.ndarray:
    """Pairs of numbers, float32, [pairs, 2]: `1 2 ; 3 4` on a line, or after their number."""
    start = reader.offset
    if reader.binary:
        floats = reader.read_array(_FLOATS, 2 * reader.read_int32())
        if np.any(floats["size"] != 4):
            raise reader.error("numbers of 4 bytes were expected here", start)
        return floats["value"].astype(np.float32).reshape(-1, 2)
    words = reader.read_line().split()
    if words and (len(words) % 3 != 2 or set(words[2::3]) - {";"}):
        raise reader.error("pairs of numbers such as '1 2 ; 3 4' were expected here", start)
    try:
        numbers = [float(word) for at, word in enumerate(words) if at % 3 != 2]
    except ValueError as error:
        raise reader.error(f"numbers were expected here: {error}", start) from None
    with np.errstate(over="ignore"):
        return np.array(numbers, np.float32).reshape(-1, 2)


def _write_float_pairs(writer: Writer, value: Any) -> None:
    pairs = np.asarray(value, np.float32).reshape(-1, 2)
    if writer.binary:
        writer.write_int32(len(pairs))
        floats = np.empty(pairs.size, _FLOATS)
        floats["size"], floats["value"] = struct.calcsize("<f"), pairs.ravel()
        writer.write_raw(floats.tobytes())
        return
    for at, (first, second) in enumerate(pairs):
        writer.write_raw("; " if at else "")
        writer.write_float(first)
        writer.write_float(second)
    writer.write_raw("\n")


def _basic(name: str, read: Callable[[Reader], Any], write: Callable[[Writer, Any], None]) -> Kind:
    """A number or flag, in text on a line of its own."""

    def read_line(reader: Reader) -> Any:
        value = read(reader)
        if not reader.binary:
            start = reader.offset
            if reader.read_line().strip():
                raise reader.error("the line ought to end here", start)
        return value

    def write_line(writer: Writer, value: Any) -> None:
        write(writer, value)
        if not writer.binary:
            writer.write_raw("\n")

    return Kind(name, read_line, write_line)


def _read_words(reader: Reader) -> list[str]:
    return reader.read_line().split()


def _write_words(writer: Writer, value: list[str]) -> None:
    for word in value:
        writer.write_token(word)
    writer.write_raw("\n")


def _read_word(reader: Reader) -> str:
    start = reader.offset
    words = _read_words(reader)
    if len(words) != 1:
        raise reader.error(f"one word was expected here, but there are {len(words)}", start)
    return words[0]


def _write_word(writer: Writer, value: str) -> None:
    checked = Writer(binary=False)
    checked.write_token(value)
    writer.write_raw(checked.getvalue().rstrip(b" ") + b"\n")


def _array(name: str, dtype: type, rank: int) -> Kind:
    """Vectors or matrices of one type, whatever is stored."""
    read = matrix_io.read_vector if rank == 1 else matrix_io.read_matrix
    write = matrix_io.write_vector if rank == 1 else matrix_io.write_matrix
    return Kind(
        name,
        lambda reader: read(reader, dtype),
        lambda writer, value: write(writer, np.asarray(value, dtype)),
        cut_array,
    )


def _read_array(reader: Reader) -> np.ndarray:
    """A vector or a matrix as stored; in text, it is a vector if there is no line end in it."""
    if reader.binary:
        is_vector = reader.peek_token() not in ("FM", "DM")
    else:
        start = reader.offset
        end = reader.data.find(b"]", start)
        is_vector = reader.data.find(b"\n", start, max(end, start)) < 0
    return matrix_io.read_vector(reader) if is_vector else matrix_io.read_matrix(reader)


def _write_array(writer: Writer, value: np.ndarray) -> None:
    write = matrix_io.write_vector if np.ndim(value) == 1 else matrix_io.write_matrix
    write(writer, value)


def _read_compressed(reader: Reader) -> CompressedMatrix:
    """A compressed matrix; a plain one is compressed by the automatic method."""
    if reader.binary and reader.peek() == "C":
        return CompressedMatrix.read(reader)
    return CompressedMatrix.compress(matrix_io.read_matrix(reader))


def write_value(writer: Writer, value: Any) -> None:
    """Write a value that writes itself."""
    value.write(writer)


# Functions whose modules are loaded once such a value is read or written.


def _read_fst(reader: Reader) -> Any:
    from ..fst.files.fst_io import read_fst

    return read_fst(reader)


def _write_fst(writer: Writer, value: Any) -> None:
    from ..fst.files.fst_io import write_fst

    write_fst(value, writer, "vector")


def _read_lattice(reader: Reader) -> Any:
    from ..lattices.lattice_io import read_lattice

    return read_lattice(reader)


def _write_lattice(writer: Writer, value: Any) -> None:
    from ..lattices.lattice_io import write_lattice

    write_lattice(writer, value)


def _read_compact_lattice(reader: Reader) -> Any:
    from ..lattices.lattice_io import read_compact_lattice

    return read_compact_lattice(reader)


def _write_compact_lattice(writer: Writer, value: Any) -> None:
    from ..lattices.lattice_io import write_compact_lattice

    write_compact_lattice(writer, value)


_ALL = (
    _array("matrix", np.float32, 2),
    _array("double_matrix", np.float64, 2),
    _array("vector", np.float32, 1),
    _array("double_vector", np.float64, 1),
    Kind("array", _read_array, _write_array, cut_array),
    Kind("general_matrix", read_general_matrix, write_general_matrix, _cut_matrix),
    Kind("compressed_matrix", _read_compressed, write_general_matrix, _cut_matrix),
    Kind("int_vector", _read_integers, _write_integers),
    Kind("int_vector_vector", _read_integer_rows, _write_integer_rows),
    Kind("int_pair_vector", _read_pairs, _write_pairs),
    Kind("float_pair_vector", _read_float_pairs, _write_float_pairs),
    Kind("posterior", Posterior.read, write_value),
    Kind("fst", _read_fst, _write_fst, header=False, own_header=True),
    Kind("lattice", _read_lattice, _write_lattice, header=False, own_header=True),
    Kind(
        "compact_lattice",
        _read_compact_lattice,
        _write_compact_lattice,
        header=False,
        own_header=True,
    ),
    _basic("int", Reader.read_int32, Writer.write_int32),
    _basic("float", Reader.read_float, Writer.write_float),
    _basic("double", Reader.read_double, Writer.write_double),
    _basic("bool", Reader.read_bool, Writer.write_bool),
    Kind("token", _read_word, _write_word, header=False),
    Kind("token_vector", _read_words, _write_words, header=False),
)
_KINDS = {kind.name: kind for kind in _ALL}
_GUESSES = ("array", "general_matrix", "int_vector", "posterior", "int", "float", "bool")


def all_kinds() -> dict[str, Kind]:
    """Every kind by its name: first the kinds of higher floors, of `KIND_MODULES`."""
    return {kind.name: kind for name in KIND_MODULES for kind in import_module(name).KINDS} | _KINDS


def guess_kind(reader: Reader) -> Kind:
    """The kind of the value that stands here (with its header), which stays there.

    Some values may be of several kinds: one integer on a line of text is taken for a vector, four
    bytes for an integer. Lines of words come last, since every text is one.

    Raises:
        FormatError: this is no value that is known.
    """
    start = reader.offset
    kinds = all_kinds()
    names = [*(name for name in kinds if name not in _KINDS), *_GUESSES]
    if bytes(reader.data[start : start + 1]) != b"\0":
        names += ["token", "token_vector"]
    for name in names:
        try:
            kinds[name].read_value(reader)
            if _key_or_end(reader):
                return kinds[name]
        except FormatError:
            continue
        finally:
            reader.offset = start
            reader.binary = False
    raise reader.error("no value of a known kind stands here")


def _key_or_end(reader: Reader) -> bool:
    """Whether what comes next may be the key of the next entry, or is the end."""
    reader.binary = False
    word = reader.peek_token()
    return not word or (word.isprintable() and not word.startswith("["))


def kind_of(kind: str | Kind) -> Kind:
    """The kind of this name, or the kind itself.

    Raises:
        FormatError: there is no such kind.
    """
    if isinstance(kind, Kind):
        return kind
    kinds = _KINDS if kind in _KINDS else all_kinds()
    if kind not in kinds:
        raise FormatError(f"there is no kind of table {kind!r}{nearest(kind, kinds)}")
    return kinds[kind]
