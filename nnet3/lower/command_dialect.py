"""A compiled computation as an op list whose operators are its commands, and back.

Variables, in the order of the sub-matrices: a matrix `mN`, which is also its own sub-matrix, or a
view `mN.sK` of one; then `indexesN`, the precomputed indexes of components. Operators:

| operator | inputs | output | attributes |
|---|---|---|---|
| `nnet3.matrix`, one a matrix, first | | the matrix | `node`, `rows` [R, 3] (n, t, x); flags |
| `nnet3.indexes` | | the indexes | `kind`, one for each field |
| `nnet3.command.NAME` | see `_SLOTS` | | the fields of `Command` that are not at their defaults |

NAME is Kaldi's name of the command in small letters: `alloc_matrix`, `propagate`, `add_rows` ...
The commands after the marker have the role BACKWARD. These operators only describe and do not run:
`commands.lower_computation` turns a computation into operators that do.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_type_hints

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, nearest
from ...framework.base.untrusted.values import plain
from ...framework.ir.attributes.checked import attribute, only_variable
from ...framework.ir.desc import (
    BACKWARD,
    FORWARD,
    INPUT,
    OUTPUT,
    TEMPORARY,
    make_op,
    make_var,
)
from ...framework.ir.messages import (
    FORMAT_VERSION,
    as_op_list,
    attr_value,
)
from ...framework.ir.op_list import OpList, OpNode, View
from ...proto import net_pb2 as pb
from ..compiler.command import Command
from ..compiler.computation import Computation, MatrixInfo, SubMatrix, numbered_sources
from ..components.attention import AttentionRows
from ..components.base.time_offsets import OffsetRows
from ..components.dropout import MaskRows
from ..components.spec_augment import SequenceRows
from ..components.statistics import RowRanges
from ..graph.topology import Topology
from ..index.indexes import Columns

DIALECT: Final = "nnet3.commands"
_PREFIX: Final = "nnet3.command."

_BACKPROP: Final = (
    {"x": "deriv.0", "out": "deriv.1", "out_deriv": "deriv.2", "indexes": "precomputed"},
    {"in_deriv": "deriv.3"},
)
# Command -> (input slots, output slots): which field names the variable of each. `rows` stands for
# the sub-matrices in the pairs (sub-matrix, row), `deriv.I` for an entry of `deriv`.
_SLOTS: Final[dict[str, tuple[dict[str, str], dict[str, str]]]] = {
    "AllocMatrix": ({}, {"out": "target"}),
    "DeallocMatrix": ({"x": "target"}, {}),
    "SwapMatrix": ({"x": "source"}, {"out": "target"}),
    "SetConst": ({}, {"out": "target"}),
    "MatrixCopy": ({"x": "source"}, {"out": "target"}),
    "MatrixAdd": ({"y": "target", "x": "source"}, {"out": "target"}),
    "CopyRows": ({"x": "source"}, {"out": "target"}),
    "AddRows": ({"y": "target", "x": "source"}, {"out": "target"}),
    "AddRowRanges": ({"y": "target", "x": "source"}, {"out": "target"}),
    "CopyRowsMulti": ({"x": "rows"}, {"out": "target"}),
    "AddRowsMulti": ({"y": "target", "x": "rows"}, {"out": "target"}),
    "AddToRowsMulti": ({"y": "rows", "x": "target"}, {"out": "rows"}),
    "CopyToRowsMulti": ({"x": "target"}, {"out": "rows"}),
    "Propagate": ({"x": "source", "indexes": "precomputed"}, {"out": "target"}),
    "Backprop": _BACKPROP,
    "BackpropNoModelUpdate": _BACKPROP,
    "CompressMatrix": ({"x": "target"}, {}),
    "DecompressMatrix": ({}, {"out": "target"}),
    "AcceptInput": ({}, {"out": "target"}),
    "ProvideOutput": ({"x": "target"}, {}),
    "NoOperation": ({}, {}),
    "NoOperationPermanent": ({}, {}),
    "NoOperationMarker": ({}, {}),
    "NoOperationLabel": ({}, {}),
    "GotoLabel": ({}, {}),
}
_ATTRS: Final = {
    "alpha": "float",
    "rows": "tensor",
    "step": "int",
    "store_stats": "bool",
    "use_memo": "bool",
    "storage": "string",
}
_DEFAULTS: Final = {field.name: field.default for field in fields(Command)}


def _small(command_type: str) -> str:
    return _PREFIX + re.sub(r"(?<!^)(?=[A-Z])", "_", command_type).lower()


_TYPES: Final = {_small(name): name for name in _SLOTS}
INDEXES: Final = {
    kind.__name__: kind for kind in (OffsetRows, AttentionRows, RowRanges, MaskRows, SequenceRows)
}
_KINDS: Final = {int: "int", tuple[int, ...]: "ints", np.ndarray: "tensor"}
INDEX_FIELDS: Final = {
    name: {field: _KINDS[hint] for field, hint in get_type_hints(kind).items()}
    for name, kind in INDEXES.items()
}
"""The fields of each of them, and what kind of attribute holds them."""
_ARRAY: Final = "array"


def to_desc(computation: Computation, name: str = "commands") -> OpList:
    """The description of a computation; equal computations give equal descriptions."""
    return _Writer(computation.explicit(), name).net


def from_desc(net: OpList | pb.NetDesc, topology: Topology | None) -> Computation:
    """The computation of a description.

    Args:
        net: what `to_desc` made.
        topology: of the network that the computation was compiled for, or of one with the same
            nodes. Without it the computation is checked, but cannot be printed or lowered.

    Raises:
        FormatError: the net is no description of commands, lacks something, or is of another
            network.
    """
    return _Reader(as_op_list(net), topology).computation


class _Writer:
    def __init__(self, computation: Computation, name: str) -> None:
        self.computation = computation
        self.nodes = computation.topology.nodes
        derivative = str(computation.need_model_derivative).lower()
        metadata = {"dialect": DIALECT, "need_model_derivative": derivative}
        self.net = OpList(name, metadata=metadata, format_version=FORMAT_VERSION)
        self.names = [""]
        self._declare()
        for number, matrix in enumerate(computation.matrices[1:], 1):
            self._matrix(f"m{number}", matrix)
        for number, indexes in enumerate(computation.precomputed[1:], 1):
            self._indexes(f"indexes{number}", indexes)
        role = FORWARD
        for command in computation.commands:
            if command.type == "NoOperationMarker":
                role = BACKWARD
            self.net.ops.append(self._command(command, role))

    def _declare(self) -> None:
        kinds = {}
        submatrices = self.computation.submatrices
        for command in self.computation.commands:
            if command.type in ("AcceptInput", "ProvideOutput"):
                kind = INPUT if command.type == "AcceptInput" else OUTPUT
                kinds[submatrices[command.target].matrix] = kind
        whole: set[int] = set()
        for number, s in enumerate(submatrices[1:], 1):
            base = f"m{s.matrix}"
            if self.computation.is_whole(number) and s.matrix not in whole:
                whole.add(s.matrix)
                kind = kinds.get(s.matrix, TEMPORARY)
                self.net.vars.append(make_var(base, (s.rows, s.cols), "float32", kind))
                self.names.append(base)
                continue
            view = View(base, s.row, s.row + s.rows, s.col, s.col + s.cols)
            var = make_var(f"{base}.s{number}", (s.rows, s.cols), "float32", view=view)
            self.net.vars.append(var)
            self.names.append(var.name)
        for number in range(1, len(self.computation.precomputed)):
            self.net.vars.append(make_var(f"indexes{number}", None, None))

    def _matrix(self, name: str, matrix: MatrixInfo) -> None:
        attrs: dict[str, Any] = {}
        if matrix.contiguous:
            attrs["contiguous"] = True
        if matrix.is_deriv:
            attrs["derivative"] = True
        if matrix.indexes is not None:
            attrs["node"] = self.nodes[matrix.node].name
            attrs["rows"] = np.asarray(matrix.indexes, np.int32)
        self.net.ops.append(make_op("nnet3.matrix", {}, {"out": name}, attrs))

    def _indexes(self, name: str, indexes: Any) -> None:
        if is_dataclass(indexes):
            kind = type(indexes).__name__
            attrs = {
                field: attr_value(getattr(indexes, field), wanted)
                for field, wanted in INDEX_FIELDS[kind].items()
            }
            attrs["kind"] = attr_value(kind)
        else:
            attrs = {"kind": _ARRAY, "array": np.asarray(indexes)}
        self.net.ops.append(make_op("nnet3.indexes", {}, {"out": name}, attrs))

    def _command(self, command: Command, role: int) -> OpNode:
        attrs: dict[str, Any] = {}
        sources: list[int] = []
        for field, kind in _ATTRS.items():
            value = getattr(command, field)
            if field == "rows" and value is not None:
                if command.type.endswith("Multi"):
                    sources, value = numbered_sources(value)
                value = np.asarray(value, np.int32)
            if value is not None and (field == "rows" or value != _DEFAULTS[field]):
                attrs[field] = attr_value(value, kind)
        if command.node >= 0:
            attrs["node"] = self.nodes[command.node].name
        read, written = (
            {slot: self._named(command, of, sources) for slot, of in slots.items()}
            for slots in _SLOTS[command.type]
        )
        return make_op(_small(command.type), read, written, attrs, role=role)

    def _named(self, command: Command, field: str, sources: list[int]) -> list[str]:
        """The variables in a slot."""
        if field == "rows":
            return [self.names[s] for s in sources]
        if field == "precomputed":
            return [f"indexes{command.precomputed}"] if command.precomputed else []
        name, _, place = field.partition(".")
        number = getattr(command, name)[int(place)] if place else getattr(command, name)
        return [self.names[number]] if number else []


class _Reader:
    def __init__(self, net: OpList, topology: Topology | None) -> None:
        if net.metadata.get("dialect") != DIALECT:
            raise FormatError(f"net {net.name!r} is no list of nnet3 commands")
        self.node = topology.number if topology is not None else _numbering()
        self.computation = Computation(topology or Topology([]))
        flag = net.metadata.get("need_model_derivative")
        self.computation.need_model_derivative = flag == "true"
        self.variables = {var.name: var for var in net.vars}
        if len(self.variables) != len(net.vars):
            raise FormatError("two variables have the same name")
        self.matrix: dict[str, int] = {}
        self.submatrix: dict[str, int] = {}
        self.indexes: dict[str, int] = {}
        numbered = list(enumerate(net.ops))
        matrices = list(itertools.takewhile(lambda pair: pair[1].type == "nnet3.matrix", numbered))
        _each(matrices, self._matrix)
        self._submatrices()
        _each(numbered[len(matrices) :], self._other)

    def _other(self, op: OpNode) -> None:
        if op.type == "nnet3.indexes":
            self._indexes(op)
        else:
            self._command(op)

    def _matrix(self, op: OpNode) -> None:
        name = only_variable(op.outputs, "out")
        if name in self.matrix:
            raise FormatError(f"{name!r} is declared twice")
        self.matrix[name] = len(self.computation.matrices)
        var = self.variables.get(name)
        shape = None if var is None or var.view is not None else var.shape
        if shape is None or len(shape) != 2 or min(shape) < 0:
            raise FormatError(f"{name!r} is no matrix with known rows and columns")
        info = MatrixInfo(*shape, "contiguous" in op.attrs, "derivative" in op.attrs)
        if "node" in op.attrs:
            node = self.node(attribute(op, "node", "string"))
            indexes = attribute(op, "rows", "tensor")
            if indexes.shape != (info.rows, 3):
                shape = list(indexes.shape)
                raise FormatError(f"indexes {shape} for the {info.rows} rows of {name!r}")
            info = info._replace(node=node, listed=Columns.of(indexes))
        self.computation.matrices.append(info)

    def _submatrices(self) -> None:
        for var in self.variables.values():
            v = var.view
            base = v.base if v is not None else var.name
            if base not in self.matrix:
                if v is not None:
                    raise FormatError(f"{var.name!r} is a view of {base!r}, which is no matrix")
                continue
            number = self.matrix[base]
            matrix = self.computation.matrices[number]
            rectangle = (0, matrix.rows, 0, matrix.cols)
            if v is not None:
                rectangle = (v.row_begin, v.row_end, v.col_begin, v.col_end)
            top, bottom, left, right = rectangle
            if not (0 <= top <= bottom <= matrix.rows and 0 <= left <= right <= matrix.cols):
                raise FormatError(
                    f"{var.name!r}: rows {top}:{bottom} and columns {left}:{right} do not lie"
                    f" within {base!r} [{matrix.rows}, {matrix.cols}]"
                )
            self.submatrix[var.name] = len(self.computation.submatrices)
            part = SubMatrix(number, top, bottom - top, left, right - left)
            self.computation.submatrices.append(part)

    def _indexes(self, op: OpNode) -> None:
        self.indexes[only_variable(op.outputs, "out")] = len(self.computation.precomputed)
        kind = attribute(op, "kind", "string")
        if kind == _ARRAY:
            value = attribute(op, "array", "tensor")
        elif kind in INDEXES:
            known = INDEX_FIELDS[kind]
            value = INDEXES[kind](**{name: attribute(op, name, known[name]) for name in known})
        else:
            raise FormatError(f"no indexes of components are called {kind!r}")
        self.computation.precomputed.append(value)

    def _command(self, op: OpNode) -> None:
        name = _TYPES.get(op.type)
        if name is None:
            raise FormatError(f"no command of that name{nearest(op.type, _TYPES)}")
        command = Command(name)
        for field, kind in _ATTRS.items():
            if field in op.attrs:
                setattr(command, field, attribute(op, field, kind))
        if command.rows is not None:
            _check_rows(name, command.rows)
        if "node" in op.attrs:
            command.node = self.node(attribute(op, "node", "string"))
        named: dict[str, tuple[str, ...]] = {}
        for slots, listed in zip(_SLOTS[name], (op.inputs, op.outputs), strict=True):
            for slot, field in slots.items():
                names = listed.get(slot, ())
                if named.setdefault(field, names) != names:
                    raise FormatError(f"the slot {slot!r} should hold what it is added to")
        for field, names in named.items():
            self._take(command, field, names)
        self.computation.commands.append(command)

    def _take(self, command: Command, field: str, names: tuple[str, ...]) -> None:
        """Set the field that a slot stands for."""
        if field == "rows":
            command.rows = self._pairs(command.rows, names)
            return
        if len(names) > 1:
            raise FormatError(f"one variable is wanted instead of {', '.join(names)}")
        known = self.indexes if field == "precomputed" else self.submatrix
        if names and names[0] not in known:
            raise FormatError(f"there is no {names[0]!r}{nearest(names[0], known)}")
        number = known[names[0]] if names else 0
        name, _, place = field.partition(".")
        if place:
            derivs = list(command.deriv)
            derivs[int(place)] = number
            command.deriv = tuple(derivs)  # type: ignore[assignment]
        else:
            setattr(command, name, number)

    def _pairs(self, rows: np.ndarray | None, names: tuple[str, ...]) -> np.ndarray:
        """Pairs (sub-matrix, row) of pairs whose sub-matrices are counted within the slot."""
        unknown = [name for name in names if name not in self.submatrix]
        if unknown:
            raise FormatError(f"there is no {unknown[0]!r}{nearest(unknown[0], self.submatrix)}")
        if rows is None or rows.ndim != 2 or rows.shape[1] != 2:
            raise FormatError("the attribute 'rows' should hold pairs of numbers")
        if len(rows) and not -1 <= rows[:, 0].min() <= rows[:, 0].max() < len(names):
            raise FormatError(f"the attribute 'rows' names more than {len(names)} matrices")
        # The last entry is for pairs of -1, which stand for no row.
        numbers = np.array([*(self.submatrix[name] for name in names), -1], np.int32)
        return np.stack((numbers[rows[:, 0]], rows[:, 1]), axis=1)


def _check_rows(name: str, rows: np.ndarray) -> None:
    """Refuse an attribute `rows` that is no list of row numbers, or of pairs of them."""
    width = 1 if name in ("AddRows", "CopyRows") else 2
    shape = rows.shape if width == 1 else rows.shape[:1]
    if rows.dtype.kind != "i" or rows.shape != shape + (2,) * (width - 1) or rows.ndim != width:
        what = "numbers of rows" if width == 1 else "pairs of numbers"
        raise FormatError(
            f"the attribute 'rows' should hold {what}, not {rows.dtype} {list(rows.shape)}"
        )


def _each(numbered: list[tuple[int, OpNode]], read: Callable[[OpNode], None]) -> None:
    for number, op in numbered:
        try:
            read(op)
        except OpscopeError as error:
            raise FormatError(f"operator {number} ({plain(op.type)}): {error}") from error


def _numbering() -> Callable[[str], int]:
    """Numbers for names, in the order in which they come."""
    numbers: dict[str, int] = {}
    return lambda name: numbers.setdefault(name, len(numbers))
