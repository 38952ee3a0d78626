"""`opscope.open(path)`: what any file is."""

from __future__ import annotations

import os

from ...framework.base.errors import VariableError
from ...framework.base.files.atomic import PathLike
from ..recognize.kinds import kind_named
from ..recognize.recognizing import known_kind
from .info import FileInfo


def open(path: PathLike) -> FileInfo:
    """What a file is, and what can be done with it; `print` shows it in a few lines.

    Kinds are known by what is in the file: models, configs and data of Kaldi's, CNTK's and HTK's,
    ONNX, safetensors, what opscope saves, the folder of a Vosk model.

    Args:
        path: of a file or folder, or a table of Kaldi's such as `ark:FILE`.

    Raises:
        FormatError: it cannot be read, is damaged, or of no known kind.
        OpscopeError: of other kinds, where the network in it does not fit together.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise VariableError(f"want the name of a file, such as 'final.mdl', not {path!r}")
    name = os.fspath(path)
    kind = kind_named(known_kind(name))
    info = FileInfo(name, kind.name, kind.title)
    info.commands = [command.replace("{file}", name) for command in kind.commands]
    if kind.tells:
        kind.function("tells")(info)
    return info
