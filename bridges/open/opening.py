"""`opscope.open(path)`: what any file is."""

from __future__ import annotations

import os
from collections.abc import Callable

from ...framework.base.atomic import PathLike
from ...framework.base.errors import VariableError
from ..recognise.kinds import KINDS, SCORED
from ..recognise.recognising import known_kind
from . import data_files, folder, networks
from .info import FileInfo

_TELLERS: dict[str, Callable[[FileInfo], None]] = {
    **dict.fromkeys(("nnet3", "acoustic model", "config", "xconfig"), networks.nnet3),
    **dict.fromkeys(("cntk config", "ndl", "brainscript"), networks.cntk_script),
    **dict.fromkeys(("net", "checkpoint"), networks.saved),
    **dict.fromkeys(("archive", "script file"), data_files.table),
    **dict.fromkeys(("options", "htk list"), data_files.text_lines),
    "model": networks.cntk,
    "cntk checkpoint": networks.cntk_checkpoint,
    "safetensors": networks.safetensors,
    "onnx": networks.onnx,
    "transition model": data_files.transition_model,
    "tree": data_files.tree,
    "topology": data_files.topology,
    "fst": data_files.fst,
    "request": data_files.request,
    "value": data_files.value,
    "vosk": folder.vosk,
    "torch": folder.torch,
    "array": data_files.arrays,
    "arrays": data_files.arrays,
    "mel": data_files.mel,
    "ctf": data_files.ctf,
    "lattice archive": data_files.lattice_archive,
    "htk features": data_files.htk_features,
    "mlf": data_files.mlf,
    "htk lattice": data_files.htk_lattice,
}


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
    kind = KINDS[known_kind(name)]
    info = FileInfo(name, kind.name, kind.title)
    info.commands = [command.replace("{file}", name) for command in kind.commands]
    if kind.name in SCORED:
        info.commands.append(f"opscope score {name} scp:FEATS OUT")
    _TELLERS[kind.name](info)
    return info
