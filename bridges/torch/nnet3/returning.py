"""`nnet3_weights_from_torch`: the weights of a PyTorch module back in a model file of Kaldi."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np

from ....framework.base.atomic import PathLike
from ....framework.base.errors import FormatError, OpscopeError
from ....framework.base.untrusted.records import typed
from ....nnet3.network.for_inference import nnet_of, read_model
from ....nnet3.network.model import AmNnetSimple
from ..folder import checked_state, config_in, refuse_original
from .to_torch import forward_of, state_of


def nnet3_weights_from_torch(folder: PathLike, original: PathLike, target: PathLike) -> list[str]:
    """Write a model file with a module's weights; returns the names of components that changed.

    Arguments and errors are those of `weights_from_torch`.
    """
    config, config_path = config_in(folder)
    unit = typed(config.get("frame_subsampling_factor"), int, f"{config_path}: subsampling factor")
    outputs = typed(config.get("outputs"), dict[str, Any], f"{config_path}: outputs")
    whole = typed(config.get("whole", False), bool, f"{config_path}: whole")
    refuse_original(original, target)
    given = read_model(os.fspath(original))
    try:
        written = forward_of(given, list(outputs), unit, whole)
    except OpscopeError as error:
        raise FormatError(
            f"{os.fspath(original)} is not what {config_path} tells: {error}"
        ) from None
    before = state_of(written)
    after = checked_state(folder, before, original)
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
