"""`nnet3_weights_from_torch`: the weights of a PyTorch module back in a model file of Kaldi."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np

from ....framework.base.errors import FormatError, OpscopeError
from ....framework.base.files.atomic import PathLike
from ....framework.base.untrusted.records import typed
from ....nnet3.network.model import AmNnetSimple
from ...model.nnet3_models import Nnet3Model
from ..folder import checked_state, config_in
from .to_torch import forward_of, state_of


def nnet3_weights_from_torch(folder: PathLike, model: Nnet3Model, target: PathLike) -> list[str]:
    """Write a model file with a module's weights; returns the names of components that changed.

    Errors are the same as of `weights_from_torch`.

    Args:
        model: the original, which takes the weights.
    """
    original = model.path
    nnet = model.nnet
    changed = list[str]()
    config, config_path = config_in(folder)
    unit = typed(config.get("frame_subsampling_factor"), int, f"{config_path}: subsampling factor")
    outputs = typed(config.get("outputs"), dict[str, Any], f"{config_path}: outputs")
    whole = typed(config.get("whole", False), bool, f"{config_path}: whole")
    try:
        written = forward_of(model.network, list(outputs), unit, whole)
    except OpscopeError as error:
        raise FormatError(f"{original} is not what {config_path} tells: {error}") from None
    before = state_of(written)
    after = checked_state(folder, before, original)
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
    if isinstance(model.network, AmNnetSimple):
        model.network.set_nnet(nnet)
    model.save(os.fspath(target))
    return changed
