"""Chain examples: features with the supervision of LF-MMI training.

Source: Kaldi's `nnet3/nnet-chain-example.cc`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ...framework.base.errors import ShapeError
from ...kaldi.files import matrix_io
from ...kaldi.files.kaldi_io import Reader, Writer
from ..files.examples import NnetIo
from ..files.index_io import read_indexes, write_indexes
from .supervisions.supervision import Supervision, merge_supervision

_SHORTEST = len("<NnetIo> a <I1V> ")


@dataclass(eq=False)
class NnetChainSupervision:
    """The supervision of one output.

    Attributes:
        name: of the output node.
        indexes: n, t, x of each row of the output, int32, [rows, 3], frame by frame.
        supervision: the allowed label sequences of the frames, a `Supervision`.
        deriv_weights: how much the derivative of each row counts, float32, [rows]; may be empty.
        token: around it in files. weights_in_bytes: how weights are written in binary: a byte each.
    """

    token: ClassVar[str] = "NnetChainSup"
    weights_in_bytes: ClassVar[bool] = False
    read_supervision: ClassVar = Supervision.read
    merge_supervision: ClassVar = staticmethod(merge_supervision)

    name: str
    indexes: np.ndarray
    supervision: Any
    deriv_weights: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))

    @classmethod
    def read(cls, reader: Reader) -> NnetChainSupervision:
        """Read one.

        Raises:
            FormatError: the bytes are something else, are cut off, or sizes do not agree.
        """
        start = reader.offset
        reader.expect_token(f"<{cls.token}>")
        name = reader.read_token()
        indexes = read_indexes(reader)
        supervision = cls.read_supervision(reader)
        weights = np.zeros(0, np.float32)
        end = f"</{cls.token}>"
        token = reader.expect_token("<DW>", "<DW2>", end)
        if token != end:
            in_bytes = token == "<DW>" and reader.binary
            weights = _read_bytes(reader) if in_bytes else matrix_io.read_vector(reader, np.float32)
            reader.expect_token(end)
        if len(indexes) != supervision.rows or len(weights) not in (0, len(indexes)):
            raise reader.error(
                f"{name} has {len(indexes)} Indexes and {len(weights)} weights of derivatives, "
                f"but {supervision.rows} frames of supervision",
                start,
            )
        return cls(name, indexes, supervision, weights)

    def write(self, writer: Writer) -> None:
        """Write it, in the form of the writer."""
        writer.write_token(f"<{self.token}>")
        writer.write_token(self.name)
        write_indexes(writer, self.indexes)
        self.supervision.write(writer)
        writer.write_token("<DW>" if self.weights_in_bytes else "<DW2>")
        if self.weights_in_bytes and writer.binary:
            _write_bytes(writer, self.deriv_weights)
        else:
            writer.write_vector(self.deriv_weights)
        writer.write_token(f"</{self.token}>")


@dataclass(eq=False)
class NnetChainExample:
    """The inputs and the supervised outputs of one example, or of several merged ones.

    Attributes:
        title: what people call it. token: around it in files. output_type: of its outputs.
    """

    title: ClassVar[str] = "chain example"
    token: ClassVar[str] = "Nnet3ChainEg"
    output_type: ClassVar[type[NnetChainSupervision]] = NnetChainSupervision

    inputs: list[NnetIo]
    outputs: list[NnetChainSupervision]

    @classmethod
    def read(cls, reader: Reader) -> NnetChainExample:
        """Read one.

        Raises:
            FormatError: the bytes are something else, or are cut off.
        """
        reader.expect_token(f"<{cls.token}>")
        reader.expect_token("<NumInputs>")
        inputs = [NnetIo.read(reader) for _ in range(_read_count(reader))]
        reader.expect_token("<NumOutputs>")
        outputs = [cls.output_type.read(reader) for _ in range(_read_count(reader))]
        reader.expect_token(f"</{cls.token}>")
        return cls(inputs, outputs)

    def write(self, writer: Writer) -> None:
        """Write it, in the form of the writer."""
        writer.write_token(f"<{self.token}>")
        for token, parts in (("<NumInputs>", self.inputs), ("<NumOutputs>", self.outputs)):
            writer.write_token(token)
            writer.write_int32(len(parts))
            _end_line(writer)
            for part in parts:
                part.write(writer)
                _end_line(writer)
        writer.write_token(f"</{self.token}>")


def _read_bytes(reader: Reader) -> np.ndarray:
    """Weights in the form of older files: the number 1, a count, and a byte for each, 255 = 1."""
    start = reader.offset
    if reader.read_bytes(1) != b"\x01":
        raise reader.error("weights of one byte each were expected here", start)
    (count,) = struct.unpack("<i", reader.read_bytes(4))
    if count < 0:
        raise reader.error(f"{count} weights cannot stand here", start)
    return np.frombuffer(reader.read_bytes(count), np.uint8) * np.float32(1 / 255)


def _write_bytes(writer: Writer, weights: np.ndarray) -> None:
    """Weights in that form."""
    rounded = (255.0 * weights + 0.5).astype(np.uint8)
    writer.write_raw(b"\x01" + struct.pack("<i", len(rounded)) + rounded.tobytes())


def _end_line(writer: Writer) -> None:
    if not writer.binary:
        writer.write_raw("\n")


def _read_count(reader: Reader) -> int:
    start = reader.offset
    count = reader.read_int32()
    if count <= 0 or count * _SHORTEST > reader.remaining():
        raise reader.error(f"an example with {count} inputs or outputs cannot stand here", start)
    return count


def merge_outputs(parts: Sequence[NnetChainSupervision]) -> NnetChainSupervision:
    """One output for all sequences of `parts`; sequence number i gets n = i.

    Raises:
        ShapeError: the parts have different names, lengths or weights.
    """
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    for part in parts[1:]:
        if part.name != first.name or len(part.indexes) != len(first.indexes):
            raise ShapeError(
                f"chain outputs {first.name} with {len(first.indexes)} rows and {part.name} with "
                f"{len(part.indexes)} cannot be merged"
            )
        if bool(len(part.deriv_weights)) != bool(len(first.deriv_weights)):
            raise ShapeError("chain examples with and without weights of derivatives differ")
    if any(part.indexes[:, 0].any() for part in parts):
        raise ShapeError("chain examples that are merged already cannot be merged again")
    stacked = np.stack([part.indexes for part in parts], axis=1)
    stacked[:, :, 0] = np.arange(len(parts))
    weights = first.deriv_weights
    if len(weights):
        weights = np.stack([part.deriv_weights for part in parts], axis=1).ravel()
    supervision = first.merge_supervision([part.supervision for part in parts])
    return replace(
        first, indexes=stacked.reshape(-1, 3), supervision=supervision, deriv_weights=weights
    )
