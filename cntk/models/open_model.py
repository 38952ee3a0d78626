"""Opening a model of CNTK, whatever its format."""

from __future__ import annotations

from typing import NamedTuple

from ...framework.base.errors import FormatError
from ...framework.base.files.atomic import PathLike
from ...framework.base.untrusted.opener import read_file
from ..network.network import Network
from .v1 import is_model, parse_model, validated
from .v2 import parse_v2_model


class OpenedModel(NamedTuple):
    """A network, and a description of its file."""

    network: Network
    format: str


def _wide(text: str) -> bytes:
    return text.encode("utf-16-le")


def format_of(data: bytes) -> str | None:
    """The kind of a CNTK file by its first bytes: "model", "checkpoint" or "v2 model"; None if it
    does not look like one."""
    if is_model(data):
        return "model"
    if data.startswith((_wide("BVersion"), _wide("BCKP"))):
        return "checkpoint"
    if data[:1] in (b"\x08", b"\x12") and (
        b"primitive_functions" in data or b"CompositeFunction" in data
    ):
        return "v2 model"
    return None


def open_model(path: PathLike, precision: str = "float", validate: bool = True) -> OpenedModel:
    """Read a binary model of versions 1 to 18, or a model of CNTK 2.0's library.

    Raises:
        FormatError: the file is missing, damaged, or no model; a checkpoint is named as such.
        ShapeError: the network in it does not fit together.
    """
    data = read_file(path)
    kind = format_of(data)
    if kind == "model":
        network = parse_model(data, str(path), precision)
        text = f"CNTK binary model, {network.precision}"
    elif kind == "v2 model":
        network = parse_v2_model(data, str(path))
        text = f"CNTK 2.0 protobuf model, {network.precision}"
    elif kind == "checkpoint":
        raise FormatError(f"{path}: a checkpoint of CNTK, without the model that lies beside it")
    else:
        raise FormatError(f"{path}: no model of CNTK")
    if validate:
        validated(network, path)
    return OpenedModel(network, text)
