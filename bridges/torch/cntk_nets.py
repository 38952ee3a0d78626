"""CNTK networks as PyTorch modules, and trained weights back into the model file."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ...cntk.network.network import Network
from ...cntk.run.runtime import CntkNet
from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.files.atomic import PathLike
from ...framework.base.untrusted.records import typed
from ..inference.cntk_nets import CntkRun
from ..inference.form import ExportError
from ..model.cntk_models import CntkModel
from .folder import NotInTorchError, TorchModel, checked_state, config_in
from .op_list.to_torch import NetWriter, write_module

_LIST = "arrayOfFunctions"
"""What BrainScript calls the layers of a `Sequential`."""
_UNNAMED = re.compile(r"\w*Args\[\d+\]|_|x|arrayOfFunctions\[\d+\]")


def cntk_to_torch(
    model: CntkNet | Network,
    folder: PathLike,
    name: str = "",
    *,
    outputs: Sequence[str] | None = None,
) -> TorchModel:
    """Write a CNTK network as a PyTorch module; arguments and errors as `to_torch`.

    Args:
        name: of the file that it comes from.
    """
    net = model if isinstance(model, CntkNet) else CntkNet(model, dtype=np.float32)
    try:
        run, written = _written(net, outputs)
        return write_module(written, run, folder, name, "cntk")
    except ExportError as error:
        raise NotInTorchError(str(error)) from error


def _written(net: CntkNet, outputs: Sequence[str] | None) -> tuple[CntkRun, NetWriter]:
    """The network in inference form, and its module.

    Raises:
        ExportError, NotInTorchError: see `to_torch`.
    """
    if isinstance(outputs, str):
        raise OpscopeError("outputs is a list of names")
    if outputs is not None and not 0 < len(set(outputs)) == len(outputs):
        raise OpscopeError("outputs wants at least one name, each once")
    run = CntkRun(net, outputs, use="PyTorch")
    written = {name for op in run.inference.operators for name in op.output_vars()}
    notes = [
        f"{node.name}: in training the running statistics follow with PyTorch's momentum"
        for node in net.network.order
        if node.operation == "BatchNormalization" and node.name in written
    ]
    title = partial(_title, net.network, run.inference.outputs)
    return run, NetWriter(run.inference, run.arrays, title, notes)


def _title(network: Network, outputs: Sequence[str], name: str) -> str:
    """What a node is called in the module: by the last part of its name, if that tells anything;
    inputs, outputs, parameters and layers of several by the whole."""
    node = network.nodes.get(name)
    whole = node is None or node.is_input or node.is_parameter or node.kind.precompute
    if node is None or whole or name in outputs:
        return name.replace(_LIST, "layer")
    last = node.name.rpartition(".")[2]
    return node.operation.lower() if _UNNAMED.fullmatch(last) else last


def cntk_weights_from_torch(folder: PathLike, model: CntkModel, target: PathLike) -> list[str]:
    """Write a model file with a module's weights; returns the names of parameters that changed.

    Errors are the same as of `weights_from_torch`; models of CNTK 2.0 are not written.

    Args:
        model: the original, which takes the weights.
    """
    original, network = model.path, model.network
    config, config_path = config_in(folder)
    outputs = typed(config.get("outputs"), dict[str, Any], f"{config_path}: outputs")
    if "protobuf" in model.format:
        raise FormatError(f"{original}: models of CNTK 2.0 are read, and not written")
    try:
        _, written = _written(CntkNet(network, dtype=np.float32), list(outputs))
    except OpscopeError as error:
        place = f"{original} is not what {config_path} tells"
        raise FormatError(f"{place}: {error}") from None
    after = checked_state(folder, written.state(), original)
    changed = written.put(after)
    for name, array in changed.items():
        node = network.nodes[name]
        dtype = np.float32 if node.value is None else node.value.dtype
        node.value = np.asfortranarray(array.T, dtype)
    model.save(os.fspath(target))
    return list(changed)
