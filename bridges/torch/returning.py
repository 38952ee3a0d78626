"""`weights_from_torch`: the weights of a PyTorch module back in a model file of Kaldi."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np

from ...framework.base.atomic import PathLike
from ...framework.base.errors import FormatError, OpscopeError, ShapeError
from ...framework.base.untrusted.records import json_file, typed
from ...framework.files.tensor_file import TensorFile
from ...nnet3.network.for_inference import nnet_of, read_model
from ...nnet3.network.model import AmNnetSimple
from .to_torch import CONFIG_FILE, STATE_FILE, forward_of, state_of

_MOST_NAMED = 10


def weights_from_torch(folder: PathLike, original: PathLike, target: PathLike) -> list[str]:
    """Write a model file with the weights that a folder of `to_torch` holds now.

    Tensors that have not changed leave their component as it is, to the last bit; all else of the
    original (transition model, priors, learning rates, statistics of nonlinearities) stays.
    Statistics of batch normalisation take the module's means and variances; their count stays.

    Args:
        folder: with `config.json` and `model.safetensors`.
        original: the model file that the module was made of.
        target: the file to write; not the original.

    Returns:
        The names of the components that changed.

    Raises:
        FormatError: a file cannot be read.
        ShapeError: names or shapes of the tensors are not those of the original, or a number is
            not finite; all are named.
        OpscopeError: target is the original.
    """
    config_path = os.path.join(os.fspath(folder), CONFIG_FILE)
    config = typed(json_file(config_path), dict[str, Any], config_path)
    unit = typed(config.get("frame_subsampling_factor"), int, f"{config_path}: subsampling factor")
    outputs = typed(config.get("outputs"), dict[str, Any], f"{config_path}: outputs")
    whole = typed(config.get("whole", False), bool, f"{config_path}: whole")
    if _same_file(original, target):
        raise OpscopeError(f"{os.fspath(target)} is the original; it is not overwritten")
    given = read_model(os.fspath(original))
    try:
        written = forward_of(given, list(outputs), unit, whole)
    except OpscopeError as error:
        raise FormatError(
            f"{os.fspath(original)} is not what {config_path} tells: {error}"
        ) from None
    before, path = state_of(written), os.path.join(os.fspath(folder), STATE_FILE)
    after = _checked(path, before, os.fspath(original))
    nnet, changed = nnet_of(given), list[str]()
    for component, layer in written.layers.items():
        names = {name: f"{written.attributes[component]}.{name}" for name in layer.arrays}
        held = [each for each in names.values() if not each.endswith("num_batches_tracked")]
        if all(np.array_equal(before[each], after[each]) for each in held):
            continue
        assert layer.store is not None
        new = copy.copy(nnet.components[component])
        layer.store(new, {name: after[each] for name, each in names.items()})
        nnet.components[component] = new
        changed.append(component)
    if isinstance(given, AmNnetSimple):
        given.set_nnet(nnet)
    given.write(os.fspath(target))
    return changed


def _same_file(original: PathLike, target: PathLike) -> bool:
    return os.path.exists(target) and os.path.samefile(original, target)


def _checked(path: str, wanted: dict[str, np.ndarray], original: str) -> dict[str, np.ndarray]:
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
        told += [
            f"'{name}' has a variance below 0"
            for name, a in found.items()
            if name.endswith("running_var") and (a < 0).any()
        ]
        if not told:
            return found
    listed = "; ".join(told[:_MOST_NAMED])
    more = f"; and {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    raise ShapeError(f"{path} does not fit {original}: {listed}{more}")
