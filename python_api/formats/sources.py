"""What a conversion can start from: a file by its kind, read into one of a few forms in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from ...bridges.recognise.kinds import KINDS, SCRIPTS
from ...bridges.recognise.recognising import check_language, known_kind
from ...cntk.models.open_model import open_model
from ...cntk.network.dialect import DIALECT as CNTK_DIALECT
from ...cntk.network.dialect import from_desc
from ...cntk.network.network import Network
from ...cntk.programs.files import networks_of
from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.untrusted.values import shown
from ...framework.files.checkpoint import read_checkpoint
from ...framework.files.saved import load_desc, load_parts, paths_of
from ...framework.ir.op_list import OpList
from ...nnet3.network.dialect import DIALECT as NNET3_DIALECT
from ...nnet3.network.for_inference import read_model
from ...nnet3.network.model import AmNnetSimple
from ...nnet3.network.nnet import Nnet
from ...nnet3.network.vosk_folder import acoustic_model_of
from ...nnet3.programs.listing import read_network

NNET3, CNTK, OPERATORS, ONNX, TORCH = "nnet3", "cntk", "operators", "onnx", "torch"
TABLE, LABELS = "table", "labels"

_FAMILIES = {
    **dict.fromkeys(("nnet3", "acoustic model", "vosk", "config", "xconfig"), NNET3),
    **dict.fromkeys(("model", "ndl", "brainscript", "cntk config"), CNTK),
    **dict.fromkeys(("net", "checkpoint"), OPERATORS),
    **dict.fromkeys(("archive", "script file", "value", "array", "arrays"), TABLE),
    **dict.fromkeys(("safetensors", "htk features", "htk list"), TABLE),
    "onnx": ONNX,
    "torch": TORCH,
    "mlf": LABELS,
}
KINDS_OF = {
    family: [kind for kind, found in _FAMILIES.items() if found == family]
    for family in dict.fromkeys(_FAMILIES.values())
}
"""The kinds of files of each family."""
DRAWN = ("config", "xconfig", *SCRIPTS)
"""Kinds that hold no parameters: these are drawn."""


@dataclass(frozen=True)
class Operators:
    """A net of operators, with its arrays."""

    net: OpList
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True)
class Source:
    """A file that is converted.

    Attributes:
        path: of it. kind: one of `KINDS`. family: what it is in memory. title: for people.
    """

    path: str
    kind: str
    family: str
    title: str

    def read(self) -> object:
        """The model; of data, ONNX and folders of PyTorch the path.

        Raises:
            OpscopeError: it cannot be read.
        """
        if self.family == NNET3:
            return _nnet3(self.path, self.kind)
        if self.family == CNTK:
            return _cntk(self.path, self.kind)
        if self.family == OPERATORS:
            if self.kind == "checkpoint":
                found = read_checkpoint(self.path)
                return Operators(found.op_list, dict(found.values))
            return Operators(*load_parts(self.path))
        return self.path

    def files(self) -> list[str]:
        """The files that must not be written to: the source, and what lies beside it."""
        if self.kind == "net":
            return [*paths_of(self.path)]
        if self.kind == "vosk":
            return [acoustic_model_of(self.path)]
        return [self.path]


def source_of(path: str) -> Source:
    """What a file is, for a conversion.

    Raises:
        FormatError: it cannot be read, or is of a kind that is not converted.
    """
    kind, name = "", path
    if not os.path.exists(path) and os.path.isfile(paths_of(path)[0]):
        kind, name = "net", paths_of(path)[0]
    kind = kind or known_kind(path)
    check_language(path, kind)
    if kind not in _FAMILIES:
        raise FormatError(f"{path}: {KINDS[kind].title}: files of this kind are not converted")
    family, title = _FAMILIES[kind], KINDS[kind].title
    if kind == "net":
        dialect = load_desc(name).metadata.get("dialect", "")
        known = {NNET3_DIALECT: NNET3, CNTK_DIALECT: CNTK, "": OPERATORS}
        if dialect not in known:
            raise FormatError(f"{path}: a net in the dialect {shown(dialect)} is not converted")
        family = known[dialect]
        title += f" in the dialect {dialect}" if dialect else " of operators"
    return Source(name, kind, family, title)


def _nnet3(path: str, kind: str) -> Nnet | AmNnetSimple:
    if kind in ("config", "xconfig"):
        return read_network(path, kind)
    if kind == "net":
        try:
            return Nnet.from_desc(*load_parts(path))
        except OpscopeError as error:
            raise type(error)(f"{path}: {error}") from error
    return read_model(acoustic_model_of(path) if kind == "vosk" else path)


def _cntk(path: str, kind: str) -> Network:
    if kind == "net":
        network = from_desc(*load_parts(path))
        network.validate()
        return network
    if kind == "model":
        return open_model(path).network
    found = networks_of(path)
    if len(found) != 1:
        listed = ", ".join(found) or "none"
        raise FormatError(f"{path}: describes {len(found)} networks ({listed}); one is needed")
    return next(iter(found.values()))
