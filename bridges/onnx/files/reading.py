"""Reading ONNX files."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.opener import path_text, read_file
from ....framework.base.untrusted.values import shown
from ....proto import onnx_pb2 as pb

STANDARD = ("", "ai.onnx")
"""The names of the domain of ONNX's own operators."""


@dataclass(frozen=True)
class ModelFile:
    """An ONNX file that has been read, its external data not yet.

    Attributes:
        path: as given; names the file in errors.
        folder: where its external data must lie.
        model: the message.
        opsets: domain -> version; the standard one is "".
    """

    path: str
    folder: str
    model: pb.ModelProto
    opsets: dict[str, int]


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read an ONNX file.

    Raises:
        FormatError: it cannot be read, is no ONNX model, or has no graph or opset.
    """
    name = path_text(path)
    return parse_model(read_file(name), name, os.path.dirname(name) or ".")


def parse_model(data: bytes, path: str, folder: str) -> ModelFile:
    """The model of an ONNX file's bytes; see `read_model`."""
    model = pb.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError differs between its implementations
        if "MaxDepth" in str(error) or "recursion" in str(error).lower():
            raise FormatError(f"{path}: its graphs or types are nested too deep") from None
        raise FormatError(f"{path}: not an ONNX file, or cut off: {error}") from None
    if not model.HasField("graph"):
        raise FormatError(f"{path}: not an ONNX file: it has no graph")
    opsets: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in STANDARD else entry.domain
        if opsets.setdefault(domain, entry.version) != entry.version:
            raise FormatError(f"{path}: two versions of the domain {shown(domain)}")
    if not opsets:
        raise FormatError(f"{path}: not an ONNX file: it names no operator set")
    return ModelFile(path, folder, model, opsets)
