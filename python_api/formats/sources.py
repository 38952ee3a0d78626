"""What a conversion can start from: a file by its kind, read into one of a few forms in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ...bridges.model.opening import open_model
from ...bridges.recognize.kinds import KINDS, SCRIPTS, kind_named
from ...bridges.recognize.recognizing import check_language, known_kind
from ...cntk.network.dialect import DIALECT as CNTK_DIALECT
from ...framework.base.errors import FormatError
from ...framework.base.untrusted.values import shown
from ...framework.files.saved import load_desc, paths_of
from ...nnet3.network.dialect import DIALECT as NNET3_DIALECT
from ...nnet3.network.vosk_folder import acoustic_model_of

NNET3, CNTK, OPERATORS, ONNX, TORCH = "nnet3", "cntk", "operators", "onnx", "torch"
TABLE, LABELS = "table", "labels"

KINDS_OF = {
    family: [kind.name for kind in KINDS.values() if kind.family == family]
    for family in (NNET3, CNTK, OPERATORS, TABLE, ONNX, TORCH, LABELS)
}
"""The kinds of files of each family."""
DRAWN = ("config", "xconfig", *SCRIPTS)
"""Kinds that hold no parameters: these are drawn."""


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
        """The network, a `NetModel` of operators; of data, ONNX and folders of PyTorch the path.

        Raises:
            OpscopeError: it cannot be read.
        """
        if self.family not in (NNET3, CNTK, OPERATORS):
            return self.path
        model = open_model(self.path, whole=True)
        return model if self.family == OPERATORS else model.network

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
    kind = ""
    name = path
    if not os.path.exists(path) and os.path.isfile(paths_of(path)[0]):
        kind = "net"
        name = paths_of(path)[0]
    kind = kind or known_kind(path)
    check_language(path, kind)
    family, title = kind_named(kind).family, kind_named(kind).title
    if not family:
        raise FormatError(f"{path}: {title}: files of this kind are not converted")
    if kind == "net":
        dialect = load_desc(name).metadata.get("dialect", "")
        known = {NNET3_DIALECT: NNET3, CNTK_DIALECT: CNTK, "": OPERATORS}
        if dialect not in known:
            raise FormatError(f"{path}: a net in the dialect {shown(dialect)} is not converted")
        family = known[dialect]
        title += f" in the dialect {dialect}" if dialect else " of operators"
    return Source(name, kind, family, title)
