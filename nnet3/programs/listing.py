"""The texts of `opscope show` and `opscope verify` for Kaldi's other files.

These are tables (archives and script files of matrices, vectors, posteriors, examples ...), single
matrices or vectors, requests, config files and xconfigs. Errors name the file and the byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.ir.op_list import OpList
from ...kaldi.files.compressed import CompressedMatrix
from ...kaldi.files.posterior import Posterior
from ...kaldi.files.sparse import SparseMatrix
from ...kaldi.tables.kinds import Kind, guess_kind, kind_of
from ...kaldi.tables.specifiers import ReadSpecifier
from ...kaldi.tables.streams import Files, open_reader
from ...kaldi.tables.tables import first_kind, read_table
from ..chain.examples import NnetChainExample
from ..files.examples import NnetExample
from ..graph.request import ComputationRequest
from ..lower import command_dialect
from ..network.nnet import Nnet
from ..xconfig import xconfig_to_configs
from .base.file_kinds import TABLE


def listing(name: str, kind: str) -> Iterator[str]:
    """The lines that `opscope show` prints for a file of this kind."""
    if kind == "request":
        yield read_request(name).to_kaldi().rstrip("\n")
    elif kind == "value":
        yield describe(read_value(name))
    else:
        for key, value in entries(name):
            yield f"{key}  {describe(value)}"


def check(name: str, kind: str) -> Iterator[str]:
    """Warnings about a file of this kind, then a line with its content.

    Raises:
        FormatError: it is damaged, or a key comes twice.
    """
    if kind == "request":
        request = read_request(name)
        request.needs_derivatives()
        counts = [sum(len(io.indexes) for io in ios) for ios in (request.inputs, request.outputs)]
        yield f"{name}: a request with {counts[0]} input rows and {counts[1]} output rows, no error"
    elif kind == "value":
        value = read_value(name)
        yield from _suspicions(name, value)
        yield f"{name}: {describe(value)}, no error"
    elif kind == "table":
        yield from _check_table(name)
    else:
        nnet = read_network(name, kind)
        yield (
            f"{name}: {len(nnet.nodes)} nodes, {len(nnet.components)} components, "
            f"{nnet.num_parameters} parameters, no error"
        )


def check_dialect(path: str, desc: OpList) -> str:
    """The content of a `.pb` in a dialect of nnet3 other than that of networks, as text.

    Raises:
        FormatError: it is damaged, or the dialect is unknown.
    """
    dialect = desc.metadata["dialect"]
    if dialect == command_dialect.DIALECT:
        commands = command_dialect.from_desc(desc, None).commands
        return f"{len(commands)} commands of a compiled computation"
    raise FormatError(f"{path}: a net in the dialect {dialect!r}, which this opscope does not know")


def read_request(name: str) -> ComputationRequest:
    """The request in a file, see `ComputationRequest.read`; `-` is standard input.

    Raises:
        FormatError: it cannot be read, or a line is wrong.
    """
    return ComputationRequest.read(open_reader(name))


def read_network(name: str, kind: str) -> Nnet:
    """The network of a `config` or an `xconfig`, with random parameters.

    Raises:
        FormatError: it cannot be read, or a line is wrong.
        ShapeError: dimensions do not fit.
    """
    if kind == "xconfig":
        return Nnet.from_config_text(xconfig_to_configs(name).ref, 0)
    return Nnet.from_configs([name], 0)


def read_value(name: str) -> Any:
    reader = Files(None).reader(name)
    if reader.peek() == "[":  # a matrix as text
        from ...kaldi.files.matrix_io import read_matrix

        return read_matrix(reader)
    value = guess_kind(reader).read_value(reader)
    if not reader.at_end():
        raise reader.error("something stands after the value")
    return value


def entries(name: str) -> Iterator[tuple[str, Any]]:
    """Keys and values of a table; its kind is that of the first value."""
    if not TABLE.match(name):
        name = f"{'scp' if name.endswith('.scp') else 'ark'}:{name}"
    kind = _kind(name)
    return iter(()) if kind is None else read_table(name, kind)


def _kind(name: str) -> Kind | None:
    """The kind of the first value of a table; None where there is none."""
    kind = first_kind(ReadSpecifier.parse(name))
    if kind is None or not kind.name.startswith("token"):
        return kind
    kind = kind_of("token_vector")  # a later line may have more words
    if next(read_table(name, kind))[1][:1] == ["["]:
        next(read_table(name, "array"))  # raises a FormatError with the reason
    return kind


def describe(value: Any) -> str:
    """A value in one line: its kind, its shape, the range of its numbers."""
    if isinstance(value, Posterior):
        return f"posterior of {len(value)} frames, {len(value.ids)} pairs"
    if isinstance(value, NnetExample):
        return "example: " + "; ".join(f"{io.name} {_example_io(io)}" for io in value.io)
    if isinstance(value, NnetChainExample):
        inputs = [f"{io.name} {_example_io(io)}" for io in value.inputs]
        outputs = [f"{sup.name} {_frames(sup.indexes)}" for sup in value.outputs]
        return f"{value.title}: " + "; ".join(inputs + outputs)
    if isinstance(value, CompressedMatrix):
        return f"compressed matrix {value.layout}{list(value.shape)}"
    if isinstance(value, SparseMatrix):
        return f"sparse matrix {list(value.shape)}, {len(value.values)} elements"
    if isinstance(value, np.ndarray):
        what = "vector" if value.ndim == 1 else "matrix"
        return f"{what} {value.dtype}{list(value.shape)}{_range(value)}"
    words = value if isinstance(value, list) else [str(value)]
    return " ".join(words)


def _range(values: np.ndarray) -> str:
    if not values.size:
        return ""
    return f"  {values.min():.6g} .. {values.max():.6g}"


def _example_io(io: Any) -> str:
    return f"{describe(io.features)}, {_frames(io.indexes)}"


def _frames(indexes: np.ndarray) -> str:
    """The number of sequences and the range of times that rows belong to."""
    if not len(indexes):
        return "no rows"
    n, t, _ = indexes.T
    sequences = len(np.unique(n))
    many = f"{sequences} sequences of " if sequences > 1 else ""
    return f"{many}t = {t.min()} .. {t.max()}"


def _check_table(name: str) -> Iterator[str]:
    seen: set[str] = set()
    rows = 0
    widths = set()
    for key, value in entries(name):
        if key in seen:
            raise FormatError(f"{name}: the key {key!r} comes twice, again as entry {len(seen)}")
        seen.add(key)
        yield from _suspicions(f"{name}: {key}", value)
        shape = getattr(value, "shape", ())
        if len(shape) == 2:
            rows += shape[0]
            widths.add(shape[1])
    if len(widths) > 1:
        yield f"warning: {name}: matrices differ in their columns: {_listed(widths)}"
    size = f", {rows} rows of {_listed(widths)} columns" if widths else ""
    yield f"{name}: {len(seen)} entries{size}, no error"


def _suspicions(place: str, value: Any) -> Iterator[str]:
    """Warnings about NaN and infinities."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        wrong = value.size - np.count_nonzero(np.isfinite(value))
        if wrong:
            yield f"warning: {place}: {wrong} of {value.size} numbers are infinite or nan"


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
