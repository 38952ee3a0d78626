"""ComputationRequests in files: Kaldi's own form, binary or text, and the lines of `request.py`.

Source: `ComputationRequest::Read` and `Write` in Kaldi's `nnet3/nnet-computation.cc`.
"""

from __future__ import annotations

from ...framework.base.errors import FormatError, OpscopeError
from ..files.index_io import read_indexes, write_indexes
from ..files.kaldi_io import Reader, Writer
from .request import ComputationRequest, IoSpecification

_BEGIN = "<ComputationRequest>"


def request_from(reader: Reader) -> ComputationRequest:
    """The request in a file, in Kaldi's form or as lines.

    Raises:
        FormatError: it holds something else; with the place.
    """
    if reader.binary or reader.peek_token() == _BEGIN:
        request = read_request(reader)
        if not reader.at_end():
            raise reader.error("something stands behind the request")
        return request
    try:
        text = bytes(reader.data[reader.offset :]).decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{reader.name}: no text (byte {error.start})") from error
    return ComputationRequest.parse(text, reader.name)


def read_request(reader: Reader) -> ComputationRequest:
    """The request that stands here in Kaldi's form.

    Raises:
        FormatError: something else stands here; with the place.
    """
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


def write_request(writer: Writer, request: ComputationRequest) -> None:
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
