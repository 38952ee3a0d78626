"""The folder that a network is written to as a PyTorch module, and what is read of it again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ...framework.base.files.atomic import PathLike, make_folder_of, write_together
from ...framework.base.untrusted.opener import path_text
from ...framework.base.untrusted.records import json_file, typed
from ...framework.files.tensor_file import TensorFile, write_tensors

MODEL_FILE, STATE_FILE, CONFIG_FILE = "model.py", "model.safetensors", "config.json"
CHECK_FILE, RECORDED_FILE = "check.py", "check.safetensors"
_MOST_NAMED = 10


class NotInTorchError(OpscopeError):
    """Parts of a network have no form in PyTorch; the message says which and why."""


@dataclass(frozen=True)
class TorchModel:
    """What `to_torch` has written.

    Attributes:
        folder: where.
        source: the text of `model.py`.
        config: the contents of `config.json`.
        parameters: how many numbers the state holds, statistics included.
        notes: what the module does not do in training as the network does.
    """

    folder: str
    source: str
    config: dict[str, Any]
    parameters: int
    notes: tuple[str, ...]


def write_folder(
    model: TorchModel,
    check: str,
    state: Mapping[str, np.ndarray],
    recorded: Mapping[str, np.ndarray],
) -> None:
    """Write all files of a module: either all are there afterwards, or none is new.

    Args:
        model: its source and config. check: the text of `check.py`.
        state: the module's state dict. recorded: inputs, and the outputs for them.

    Raises:
        SaveError: the folder cannot be written.
    """
    data = {
        MODEL_FILE: model.source.encode(),
        CONFIG_FILE: (json.dumps(model.config, indent=2) + "\n").encode(),
        CHECK_FILE: check.encode(),
        STATE_FILE: _tensors(state),
        RECORDED_FILE: _tensors(recorded),
    }
    make_folder_of(os.path.join(model.folder, MODEL_FILE))
    write_together(
        [
            (os.path.join(model.folder, each), lambda file, held=contents: file.write(held))
            for each, contents in data.items()
        ]
    )


def _tensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    file = BytesIO()
    write_tensors(file, dict(arrays), {"format": "pt"})
    return file.getvalue()


def config_in(folder: PathLike) -> tuple[dict[str, Any], str]:
    """The contents of a folder's `config.json`, and its path.

    Raises:
        FormatError: it cannot be read, or is damaged.
    """
    path = os.path.join(path_text(folder), CONFIG_FILE)
    return typed(json_file(path), dict[str, Any], path), path


def refuse_original(original: PathLike, target: PathLike) -> None:
    """Refuse to write over the original.

    Raises:
        OpscopeError: target is the original.
    """
    if os.path.exists(target) and os.path.samefile(original, target):
        raise OpscopeError(f"{os.fspath(target)} is the original; it is not overwritten")


def checked_state(
    folder: PathLike, wanted: Mapping[str, np.ndarray], original: PathLike
) -> dict[str, np.ndarray]:
    """The tensors of a folder's state, which must have the names, shapes and kinds of the original.

    Raises:
        FormatError: the file cannot be read.
        ShapeError: names, shapes or kinds are others, or numbers are none; all are named.
    """
    path = os.path.join(os.fspath(folder), STATE_FILE)
    file = TensorFile(path)
    problems = [f"'{name}' is missing" for name in wanted if name not in file.specs]
    problems += [f"'{name}' is not known there" for name in file.specs if name not in wanted]
    for name, array in wanted.items():
        if name in file.specs:
            shape, dtype = file.spec(name)
            if shape != array.shape:
                problems.append(f"'{name}' is {list(shape)}, not {list(array.shape)}")
            elif dtype.kind != array.dtype.kind:
                problems.append(f"'{name}' is {dtype}, not {array.dtype}")
    if not problems:
        arrays = {name: file.read(name).astype(wanted[name].dtype) for name in wanted}
        problems = [
            f"'{name}' is not finite" for name, a in arrays.items() if not np.isfinite(a).all()
        ]
        problems += [
            f"'{name}' has a variance below 0"
            for name, a in arrays.items()
            if name.endswith("running_var") and (a < 0).any()
        ]
        if not problems:
            return arrays
    listed = "; ".join(problems[:_MOST_NAMED])
    more = f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
    raise ShapeError(f"{path} does not fit {os.fspath(original)}: {listed}{more}")
