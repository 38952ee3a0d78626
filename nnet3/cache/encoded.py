"""A computation as bytes, and back: tables of numbers, quick to read and small.

    8 bytes     length of what follows, up to the tables
    JSON        names of commands and storages, precomputed indexes
    tables      int64: arrays (dtype, rows, columns, differences), matrices, sub-matrices, commands;
                float64: the factors of commands
    arrays      row numbers, and the indexes of matrices as differences of neighboring rows

All of it is compressed. What a file says is checked here as far as it names something by number;
a checksum shows that it is whole. `lower/command_dialect.py` has the form that people read.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any, Final

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.values import json_value, member
from ..compiler.command import Command
from ..compiler.computation import Computation, MatrixInfo, submatrices_of
from ..graph.topology import Topology
from ..index.indexes import LazyIndexes
from ..lower.command_dialect import INDEX_FIELDS, INDEXES

MOST_BYTES: Final = 1 << 26
"""Before compression: what is larger is not kept."""

_LENGTH = struct.Struct("<Q")
_DTYPES: Final = ("<i4", "<i8")
_MATRIX: Final = 7  # columns of the tables
_COMMAND: Final = 13
_ARRAY: Final = 4


def encode(computation: Computation) -> bytes:
    """The bytes of a computation.

    Raises:
        FormatError: it is too large, or holds what this form has no place for.
    """
    return _Writer(computation).data()


def decode(data: bytes, topology: Topology, what: str) -> Computation:
    """The computation of such bytes.

    Args:
        topology: of the network that it was compiled for. what: names the bytes, for errors.

    Raises:
        FormatError: they are damaged, or of another network.
    """
    return _Reader(data, topology, what).computation


class _Writer:
    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.arrays: list[np.ndarray] = []
        self.table: list[tuple[int, int, int, int]] = []
        self.types: dict[str, int] = {}

    def data(self) -> bytes:
        c = self.computation
        matrices = [self._matrix(matrix) for matrix in c.matrices]
        commands = [self._command(command) for command in c.commands]
        alphas = np.array([command.alpha for command in c.commands], "<f8")
        indexes = [self._indexes(value) for value in c.precomputed]
        header = {
            "derivative": c.need_model_derivative,
            "types": list(self.types),
            "indexes": indexes,
            "counts": [len(self.table), len(matrices), len(c.submatrices), len(commands)],
        }
        text = json.dumps(header).encode()
        tables = [
            np.array(rows, "<i8").tobytes()
            for rows in (self.table, matrices, c.submatrices, commands)
        ]
        parts = [_LENGTH.pack(len(text)), text, *tables, alphas.tobytes()]
        whole = b"".join([*parts, *[array.tobytes() for array in self.arrays]])
        if len(whole) > MOST_BYTES:
            raise FormatError(f"a computation of {len(whole)} bytes")
        return zlib.compress(whole, 1)

    def _matrix(self, m: MatrixInfo) -> tuple[int, ...]:
        number = -1
        sequences = 0
        if m.listed is not None:
            number = self._add(m.listed.indexes, differences=True)
            sequences = m.listed.sequences
        return m.rows, m.cols, int(m.contiguous), int(m.is_deriv), m.node, number, sequences

    def _command(self, c: Command) -> tuple[int, ...]:
        rows = -1 if c.rows is None else self._add(c.rows)
        flags = int(c.store_stats) + 2 * int(c.use_memo)
        kind, storage = self._text(c.type), self._text(c.storage)
        numbers = (c.target, c.source, c.node, c.step, c.precomputed, *c.deriv)
        return kind, *numbers, rows, flags, storage

    def _text(self, text: str) -> int:
        return self.types.setdefault(text, len(self.types))

    def _indexes(self, value: Any) -> Any:
        if value is None:
            return None
        if not is_dataclass(value):
            return self._add(np.asarray(value))
        kind = type(value).__name__
        if INDEXES.get(kind) is not type(value):
            raise FormatError(f"precomputed indexes of the kind {kind}")
        encoded: dict[str, Any] = {"kind": kind}
        for field, wanted in INDEX_FIELDS[kind].items():
            content = getattr(value, field)
            encoded[field] = (
                self._add(content) if wanted == "tensor" else np.array(content).tolist()
            )
        return encoded

    def _add(self, array: np.ndarray, differences: bool = False) -> int:
        dtype = "<" + array.dtype.str[1:]
        if dtype not in _DTYPES or array.ndim not in (1, 2):
            raise FormatError(f"an array of {array.dtype}, {list(array.shape)}")
        columns = array.shape[1] if array.ndim == 2 else -1
        self.table.append((_DTYPES.index(dtype), len(array), columns, int(differences)))
        if differences and len(array):
            array = np.concatenate((array[:1], array[1:] - array[:-1]))
        self.arrays.append(array.astype(dtype, copy=False))
        return len(self.table) - 1


class _Reader:
    def __init__(self, data: bytes, topology: Topology, what: str) -> None:
        self.what = what
        self.at = 0
        self.data = self._unpacked(data)
        (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
        try:
            header = json_value(bytes(self._take(length)).decode(), what)
        except UnicodeDecodeError:
            self._refuse("no text in UTF-8")
        if not isinstance(header, dict):
            self._refuse("no object of JSON")
        self.types = self._listed(header, "types", str)
        counts = self._listed(header, "counts", int)
        if len(counts) != 4 or min(counts) < 0:
            self._refuse("no four counts")
        widths = (_ARRAY, _MATRIX, 5, _COMMAND)
        tables = [self._table(count, width) for count, width in zip(counts, widths, strict=True)]
        alphas = np.frombuffer(self._take(8 * counts[3]), "<f8").tolist()
        self.table: list[list[int]] = tables[0].tolist()
        self.starts = self._laid_out(tables[0])
        self.nodes = len(topology.nodes)
        indexes = self._listed(header, "indexes", object)
        self._check(tables[1], tables[2], tables[3], len(indexes))
        self.computation = Computation(
            topology,
            [self._matrix(*row) for row in tables[1].tolist()],
            submatrices_of(tables[2].tolist()),
            [self._command(a, *row) for row, a in zip(tables[3].tolist(), alphas, strict=True)],
            [self._indexes(value) for value in indexes],
            need_model_derivative=member(header, "derivative", bool, what),
        )

    def _refuse(self, why: str) -> Any:
        raise FormatError(f"{self.what}: {why}")

    def _unpacked(self, data: bytes) -> memoryview:
        unpacker = zlib.decompressobj()
        try:
            whole = unpacker.decompress(data, MOST_BYTES)
        except zlib.error as error:
            self._refuse(str(error))
        if not unpacker.eof or unpacker.unused_data:
            self._refuse("it is cut, or too large")
        return memoryview(whole)

    def _take(self, size: int) -> memoryview:
        part = self.data[self.at : self.at + size]
        if len(part) != size:
            self._refuse("it ends too early")
        self.at += size
        return part

    def _listed(self, header: dict[str, Any], name: str, kind: type) -> list[Any]:
        entries = member(header, name, list, self.what)
        if not all([isinstance(value, kind) for value in entries]):
            self._refuse(f"wrong values in {name!r}")
        return entries

    def _table(self, rows: int, columns: int) -> np.ndarray:
        return np.frombuffer(self._take(8 * rows * columns), "<i8").reshape(rows, columns)

    def _laid_out(self, table: np.ndarray) -> list[int]:
        """Where each array begins."""
        kinds, rows, columns, _ = table.T
        if not _within(kinds, 0, len(_DTYPES)) or not _within(rows, 0, MOST_BYTES):
            self._refuse("arrays of unknown kinds or sizes")
        if not _within(columns, -1, 5):
            self._refuse("arrays of unknown shapes")
        sizes = np.array([int(dtype[2:]) for dtype in _DTYPES])[kinds] * rows * np.abs(columns)
        ends = np.cumsum(sizes)
        if self.at + int(sizes.sum()) != len(self.data):
            self._refuse("the arrays have not the size that is declared")
        return (self.at + ends - sizes).tolist()

    def _check(
        self, matrices: np.ndarray, parts: np.ndarray, commands: np.ndarray, indexes: int
    ) -> None:
        """Refuse numbers of what is not there."""
        arrays = len(self.table)
        count = len(parts)
        sizes = matrices[:, :2]
        fine = len(matrices) > 0 and count > 0 and indexes > 0
        fine = fine and _within(sizes, 0, 1 << 31) and _within(matrices[:, 4], -1, self.nodes)
        fine = fine and _within(matrices[:, 5], -1, arrays)
        fine = fine and _within(parts, 0, 1 << 31) and _within(parts[:, 0], 0, len(matrices))
        if fine:
            ends = parts[:, [1, 3]] + parts[:, [2, 4]]
            fine = bool((ends <= sizes[parts[:, 0]]).all())
        limits = (len(self.types), count, count, self.nodes, 1 << 31, indexes)
        limits += (count, count, count, count, arrays, 4, len(self.types))
        lowest = (0, 0, 0, -1, -1, 0, 0, 0, 0, 0, -1, 0, 0)
        for column, low, limit in zip(commands.T, lowest, limits, strict=True):
            fine = fine and _within(column, low, limit)
        if not fine:
            self._refuse("it names matrices, nodes or arrays that are not there")

    def _matrix(
        self, rows: int, cols: int, whole: int, deriv: int, node: int, listed: int, sequences: int
    ) -> MatrixInfo:
        lazy: Any = None
        if listed >= 0:
            if self.table[listed][1:3] != [rows, 3]:
                self._refuse("indexes of other rows than a matrix has")
            lazy = LazyIndexes(rows, sequences, lambda: self._array(listed))
        return MatrixInfo(rows, cols, bool(whole), bool(deriv), node, lazy)

    def _command(self, alpha: float, kind: int, *numbers: int) -> Command:
        target, source, node, step, precomputed, a, b, c, d, rows, flags, storage = numbers
        listed = self._array(rows) if rows >= 0 else None
        name = self.types[kind]
        deriv = (a, b, c, d)
        stats = bool(flags & 1)
        memo = bool(flags & 2)
        stored = self.types[storage]
        return Command(
            name, target, source, alpha, listed, node, step, precomputed, deriv, stats, memo, stored
        )

    def _indexes(self, value: Any) -> Any:
        if value is None:
            return None
        if type(value) is int:
            return self._array(value)
        if not isinstance(value, dict) or value.get("kind") not in INDEXES:
            self._refuse("precomputed indexes of no known kind")
        kind = INDEXES[value["kind"]]
        values = {}
        for field, wanted in INDEX_FIELDS[value["kind"]].items():
            content = value.get(field)
            numbers: Sequence[Any] = content if isinstance(content, list) else [content]
            if not all([type(one) is int for one in numbers]):
                self._refuse(f"{value['kind']} without whole numbers in {field!r}")
            if (wanted == "ints") != isinstance(content, list):
                self._refuse(f"{value['kind']} with a wrong {field!r}")
            if wanted == "tensor":
                content = self._array(numbers[0])
            values[field] = tuple(numbers) if wanted == "ints" else content
        return kind(**values)

    def _array(self, number: int) -> np.ndarray:
        if not 0 <= number < len(self.table):
            self._refuse(f"no array {number}")
        kind, rows, columns, differences = self.table[number]
        dtype = np.dtype(_DTYPES[kind])
        count = rows * abs(columns)
        array = np.frombuffer(self.data, dtype, count, self.starts[number])
        if columns >= 0:
            array = array.reshape(rows, columns)
        return np.cumsum(array, axis=0, dtype=dtype) if differences else array


def _within(values: np.ndarray, low: int, limit: int) -> bool:
    """Whether all values lie from `low` up to, and without, `limit`."""
    return not values.size or bool(low <= values.min() and values.max() < limit)
