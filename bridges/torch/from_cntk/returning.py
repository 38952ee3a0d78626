"""`cntk_weights_from_torch`: the weights of a PyTorch module back in a model file of CNTK."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ....cntk.models.open_model import format_of, open_model
from ....cntk.models.v1 import write_model
from ....cntk.run.runtime import CntkNet
from ....framework.base.atomic import PathLike
from ....framework.base.errors import FormatError, OpscopeError
from ....framework.base.untrusted.opener import read_file
from ....framework.base.untrusted.records import typed
from ..folder import checked_state, config_in, refuse_original
from .forward import Writer
from .modules import state_name, state_of
from .pruning import pruned


def cntk_weights_from_torch(folder: PathLike, original: PathLike, target: PathLike) -> list[str]:
    """Write a model file with a module's weights; returns the names of parameters that changed.

    Arguments and errors are those of `weights_from_torch`; models of CNTK 2.0 are not written.
    """
    config, config_path = config_in(folder)
    outputs = typed(config.get("outputs"), dict[str, Any], f"{config_path}: outputs")
    refuse_original(original, target)
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
    after = checked_state(folder, before, original)
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
