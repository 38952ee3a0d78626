"""ComputationRequest: which rows of which nodes are given, which are wanted, which derivatives.

Source: Kaldi's nnet-computation.h; the text form is one line for each input and output and one for
the flags:

    input input has_deriv=1 0,5,0 0,6,0
    output output has_deriv=1 0,5,0
    need_model_derivative=1 store_component_stats=0

An entry may stand for many rows: `0,-3:20` and the like, see `index.ranges`. Kaldi's own files, see
`ComputationRequest::Read` in `nnet-computation.cc`, are read and written as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, ShapeError, check_kind
from ...framework.base.files.atomic import PathLike
from ...kaldi.files.kaldi_io import Reader, Writer
from ..files.index_io import read_indexes, write_indexes
from ..index.indexes import as_indexes, format_indexes
from ..index.ranges import format_rows, parse_rows, rows_of


@dataclass
class IoSpecification:
    """An input or output node with its rows.

    Attributes:
        name: the node: an input node (or a component node whose values are given), or an output.
        indexes: int32 [rows, 3]: n, t, x.
        has_deriv: for an input: its derivative is wanted; for an output: its derivative is given.
    """

    name: str
    indexes: np.ndarray
    has_deriv: bool = False

    def __post_init__(self) -> None:
        check_kind(self.name, str, "the name of an input or output")
        if self.name.split() != [self.name]:
            raise FormatError(f"{self.name!r} is no name of an input or output")
        check_kind(self.has_deriv, bool | np.bool_, f"'{self.name}': has_deriv")
        self.indexes = as_indexes(self.indexes, f"'{self.name}'")

    def __str__(self) -> str:
        return f"{self.name}={format_rows(self.indexes)}{'/deriv' if self.has_deriv else ''}"

    def to_kaldi(self) -> str:
        """The line that Kaldi prints, without its end."""
        flag = "true" if self.has_deriv else "false"
        return f"name={self.name}, has-deriv={flag}, indexes={format_indexes(self.indexes)}"


@dataclass
class ComputationRequest:
    """The inputs that a computation takes and the outputs that it computes."""

    inputs: list[IoSpecification] = field(default_factory=list)
    outputs: list[IoSpecification] = field(default_factory=list)
    need_model_derivative: bool = False
    store_component_stats: bool = False

    def __post_init__(self) -> None:
        for what, listed in (("inputs", self.inputs), ("outputs", self.outputs)):
            check_kind(listed, list, f"{what} of a request")
            for io in listed:
                check_kind(io, IoSpecification, f"each of the {what} of a request")
        for name in ("need_model_derivative", "store_component_stats"):
            check_kind(getattr(self, name), bool | np.bool_, f"{name} of a request")

    @classmethod
    def parse(cls, text: str, where: str = "request") -> ComputationRequest:
        """The request from its text form.

        Raises:
            FormatError: with line number: what is wrong.
            AttributeTypeError: the text is no str.
        """
        check_kind(text, str, "the text of a request")
        request = cls()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            try:
                if not words or words[0].startswith("#"):
                    continue
                if words[0] in ("input", "output"):
                    listed = request.inputs if words[0] == "input" else request.outputs
                    listed.append(_io(words))
                else:
                    for word in words:
                        name, value = _flag(word)
                        if name not in ("need_model_derivative", "store_component_stats"):
                            raise FormatError(f"unknown word '{word}'")
                        setattr(request, name, value)
            except OpscopeError as error:
                raise FormatError(f"{where}, line {number}: {error}") from None
        return request

    @classmethod
    def read(cls, source: PathLike | Reader) -> ComputationRequest:
        """The request in a file: Kaldi's form, binary or text, or the lines of `parse`.

        Args:
            source: a path, or a reader at the beginning of a file.

        Raises:
            FormatError: it cannot be read, or holds something else; with the place.
        """
        reader = source if isinstance(source, Reader) else Reader(source)
        if reader.binary or reader.peek_token() == _BEGIN:
            request = _read(reader)
            if not reader.at_end():
                raise reader.error("something stands after the request")
            return request
        try:
            text = bytes(reader.data[reader.offset :]).decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"{reader.name}: no text (byte {error.start})") from error
        return cls.parse(text, reader.name)

    def write(self, path: PathLike, binary: bool = True) -> None:
        """Write the request to a file in Kaldi's form.

        Raises:
            SaveError: the file cannot be written.
        """
        writer = Writer(binary)
        _write(writer, self)
        writer.save(path)

    def to_text(self) -> str:
        """The text form, which `parse` reads."""
        lines = []
        for kind, listed in (("input", self.inputs), ("output", self.outputs)):
            for io in listed:
                rows = " ".join(",".join(map(str, row)) for row in io.indexes.tolist())
                lines.append(f"{kind} {io.name} has_deriv={int(io.has_deriv)} {rows}".rstrip())
        lines.append(
            f"need_model_derivative={int(self.need_model_derivative)}"
            f" store_component_stats={int(self.store_component_stats)}"
        )
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        """The short form with ranges, which `network.short_request` reads."""
        ios = [*self.inputs, *self.outputs]
        listed = [list(rows_of(io.indexes)) for io in ios]
        words = list(map(str, ios))
        ns = {rows.n for parts in listed for rows in parts}
        plain = all(not rows.by_time and rows.x == "0" for parts in listed for rows in parts)
        if len(ns) == 1 and plain:  # the sequences are named once, before the nodes
            words = [f"n={n}" for n in ns if n != "0"]
            for io, parts in zip(ios, listed, strict=True):
                times = ";".join(rows.t for rows in parts)
                words.append(f"{io.name}={times}{'/deriv' if io.has_deriv else ''}")
        if self.need_model_derivative:
            words.append("need_model_derivative")
        if self.store_component_stats:
            words.append("store_component_stats")
        return " ".join(words)

    def to_kaldi(self) -> str:
        """The lines that Kaldi prints."""
        lines = ["# Computation request:"]
        for kind, listed in (("input", self.inputs), ("output", self.outputs)):
            lines += [f"{kind}-{i}: {io.to_kaldi()}" for i, io in enumerate(listed)]
        lines.append(f"need-model-derivative: {str(self.need_model_derivative).lower()}")
        lines.append(f"store-component-stats: {str(self.store_component_stats).lower()}")
        return "\n".join(lines) + "\n"

    def key(self) -> tuple[object, ...]:
        """A hashable value that is equal for equal requests."""

        def ios(listed: list[IoSpecification]) -> tuple[object, ...]:
            return tuple((io.name, io.has_deriv, io.indexes.tobytes()) for io in listed)

        flags = (self.need_model_derivative, self.store_component_stats)
        return ios(self.inputs), ios(self.outputs), flags

    def needs_derivatives(self) -> bool:
        """Whether there is a backward part.

        Raises:
            ShapeError: derivatives are wanted, and no output's derivative is given.
        """
        wanted = self.need_model_derivative or any(io.has_deriv for io in self.inputs)
        if wanted and not any(io.has_deriv for io in self.outputs):
            raise ShapeError(
                "the request wants derivatives of the model or of inputs, and gives none at an"
                " output (has_deriv=1)"
            )
        return wanted

    def find(self, name: str, output: bool) -> IoSpecification | None:
        """The input or output of that name."""
        listed = self.outputs if output else self.inputs
        return next((io for io in listed if io.name == name), None)


_INDEX = re.compile(r"(-?\d{1,10}),(-?\d{1,10}),(-?\d{1,10})\Z")


def _io(words: list[str]) -> IoSpecification:
    if len(words) < 2:
        raise FormatError(f"'{words[0]}' wants a node's name and its indexes")
    rest = words[2:]
    has_deriv = False
    if rest and "=" in rest[0]:
        name, has_deriv = _flag(rest.pop(0))
        if name != "has_deriv":
            raise FormatError(f"unknown word '{name}='")
    parts: list[np.ndarray] = []
    rows: list[list[int]] = []
    for word in rest:
        match = _INDEX.match(word)
        if match is not None:
            rows.append([int(part) for part in match.groups()])
            continue
        parts += np.array(rows, np.int64).reshape(-1, 3), parse_rows(word)
        rows = []
    parts.append(np.array(rows, np.int64).reshape(-1, 3))
    return IoSpecification(words[1], np.concatenate(parts), has_deriv)


def _flag(word: str) -> tuple[str, bool]:
    name, _, value = word.partition("=")
    if value not in ("0", "1", "true", "false"):
        raise FormatError(f"'{word}' should be NAME=0 or NAME=1")
    return name, value in ("1", "true")


_BEGIN = "<ComputationRequest>"


def _read(reader: Reader) -> ComputationRequest:
    """The request that stands here in Kaldi's form."""
    reader.expect_token(_BEGIN)
    inputs = _read_all(reader, "Inputs")
    outputs = _read_all(reader, "Outputs")
    reader.expect_token("<NeedModelDerivative>")
    derivative = reader.read_bool()
    reader.expect_token("<StoreComponentStats>")
    statistics = reader.read_bool()
    reader.expect_token("</ComputationRequest>")
    return ComputationRequest(inputs, outputs, derivative, statistics)


def _read_all(reader: Reader, kind: str) -> list[IoSpecification]:
    reader.expect_token(f"<Num{kind}>")
    count = reader.read_int(8, signed=False)
    reader.expect_token(f"<{kind}>")
    listed = []
    for _ in range(count):  # a count that is too high ends at the first token that is missing
        start = reader.offset
        reader.expect_token("<IoSpecification>")
        name = reader.read_token()
        reader.expect_token("<NumIndexes>")
        rows = reader.read_int(8, signed=False)
        reader.expect_token("<Indexes>")
        indexes = read_indexes(reader)
        if len(indexes) != rows:
            raise reader.error(f"'{name}' has {len(indexes)} Indexes, not {rows}", start)
        reader.expect_token("<HasDeriv>")
        has_deriv = reader.read_bool()
        reader.expect_token("</IoSpecification>")
        try:
            listed.append(IoSpecification(name, indexes, has_deriv))
        except OpscopeError as error:
            raise reader.error(str(error), start) from error
    return listed


def _write(writer: Writer, request: ComputationRequest) -> None:
    """Write a request in Kaldi's form."""
    end = "" if writer.binary else "\n"
    writer.write_token(_BEGIN)
    for kind, listed in (("Inputs", request.inputs), ("Outputs", request.outputs)):
        writer.write_raw(end)
        writer.write_token(f"<Num{kind}>")
        writer.write_int(len(listed), 8, signed=False)
        writer.write_raw(end)
        writer.write_token(f"<{kind}>")
        for io in listed:
            writer.write_token("<IoSpecification>")
            writer.write_raw(end)
            writer.write_token(io.name)
            writer.write_token("<NumIndexes>")
            writer.write_int(len(io.indexes), 8, signed=False)
            writer.write_token("<Indexes>")
            write_indexes(writer, io.indexes)
            writer.write_token("<HasDeriv>")
            writer.write_bool(io.has_deriv)
            writer.write_raw(end)
            writer.write_token("</IoSpecification>")
            writer.write_raw(end)
    writer.write_raw(end)
    writer.write_token("<NeedModelDerivative>")
    writer.write_bool(request.need_model_derivative)
    writer.write_token("<StoreComponentStats>")
    writer.write_bool(request.store_component_stats)
    writer.write_token("</ComputationRequest>")
    writer.write_raw(end)
