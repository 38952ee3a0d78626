"""`cntk_weights_from_torch`: the weights of a PyTorch module back in a model file of CNTK."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ....cntk.models.open_model import format_of, open_model
from ....cntk.models.v1 import write_model
from ....cntk.run.runtime import CntkNet
from ....framework.base.atomic import PathLike
from ....framework.base.errors import FormatError, OpscopeError, ShapeError
from ....framework.base.untrusted.records import json_file, typed
from ....framework.base.untrusted.values import open_file, read_file
from ....framework.files.tensor_file import TensorFile
from ..to_torch import CONFIG_FILE, STATE_FILE
from .forward import Writer
from .modules import state_name, state_of
from .pruning import pruned

_MOST_NAMED = 10


def is_cntk_model(path: PathLike) -> bool:
    """Whether a file looks like a model of CNTK, of version 1 or 2; no, where it cannot be read."""
    try:
        with open_file(path) as file:
            begin = file.read(1 << 16)
    except OSError:
        return False
    return format_of(begin) is not None


def cntk_weights_from_torch(folder: PathLike, original: PathLike, target: PathLike) -> list[str]:
    """Write a model file with the weights that a folder of `cntk_to_torch` holds now.

    Parameters that have not changed stay as they are, to the last bit, and so does all else of the
    original: criteria, labels, learning rates.

    Args:
        folder: with `config.json` and `model.safetensors`.
        original: the model file that the module was made of; none of CNTK 2.0.
        target: the file to write; not the original.

    Returns:
        The names of the parameters that changed.

    Raises:
        FormatError: a file cannot be read, or is not what the folder was made of.
        ShapeError: names or shapes of the tensors are not those of the original, or a number is
            not finite; all are named.
        OpscopeError: target is the original.
    """
    config_path = os.path.join(os.fspath(folder), CONFIG_FILE)
    config = typed(json_file(config_path), dict[str, Any], config_path)
    outputs = typed(config.get("outputs"), dict[str, Any], f"{config_path}: outputs")
    if os.path.exists(target) and os.path.samefile(original, target):
        raise OpscopeError(f"{os.fspath(target)} is the original; it is not overwritten")
    if format_of(read_file(original)) == "v2 model":
        raise FormatError(f"{os.fspath(original)}: models of CNTK 2.0 are read, and not written")
    network = open_model(original).network
    try:
        written = Writer(pruned(network, list(outputs)))
    except OpscopeError as error:
        place = f"{os.fspath(original)} is not what {config_path} tells"
        raise FormatError(f"{place}: {error}") from None
    net = CntkNet(network, dtype=np.float32)
    before = state_of(written.layers, lambda node: net.get(node.name))
    after = _checked(os.path.join(os.fspath(folder), STATE_FILE), before, os.fspath(original))
    changed: list[str] = []
    for attribute, layer in written.layers.items():
        for key, tensor in layer.tensors.items():
            name = state_name(attribute, key)
            if np.array_equal(before[name], after[name]):
                continue
            node = tensor.node
            dtype = np.float32 if node.value is None else node.value.dtype
            node.value = np.asfortranarray(tensor.back(after[name]), dtype)
            changed.append(node.name)
    write_model(network, target)
    return changed


def _checked(path: str, wanted: dict[str, Any], original: str) -> dict[str, np.ndarray]:
    """The tensors of a state, which must have the names, shapes and kinds of the original's."""
    file = TensorFile(path)
    told = [f"'{name}' is missing" for name in wanted if name not in file.specs]
    told += [f"'{name}' is not known there" for name in file.specs if name not in wanted]
    for name, array in wanted.items():
        if name in file.specs:
            shape, dtype = file.spec(name)
            if shape != array.shape:
                told.append(f"'{name}' is {list(shape)}, not {list(array.shape)}")
            elif dtype.kind != array.dtype.kind:
                told.append(f"'{name}' is {dtype}, not {array.dtype}")
    if not told:
        found = {name: file.read(name).astype(wanted[name].dtype) for name in wanted}
        told = [f"'{name}' is not finite" for name, a in found.items() if not np.isfinite(a).all()]
        if not told:
            return found
    listed = "; ".join(told[:_MOST_NAMED])
    more = f"; and {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    raise ShapeError(f"{path} does not fit {original}: {listed}{more}")
