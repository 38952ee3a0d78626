"""`to_torch`: a folder with any network as a PyTorch module."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, Union, cast

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.files.atomic import PathLike
from ...framework.base.scope import Scope, default_scope
from ...framework.files.saved import HasOpList, Loaded, op_list_of
from ...framework.ir.op_list import OpList
from ...nnet3.network.for_inference import Model as Nnet3Model
from ...nnet3.network.for_inference import opened
from ..model.model import Model as OpenedModel
from ..model.net_models import held_values
from ..model.opening import open_model
from .folder import TorchModel

if TYPE_CHECKING:
    from ...cntk.network.network import Network
    from ...cntk.run.runtime import CntkNet

Model: TypeAlias = Union[Nnet3Model, "CntkNet", "Network", HasOpList, OpList, Loaded]
"""A network of Kaldi's or CNTK's, a net of operators, or the path of a file of any."""
_OF_ORIGINALS = ("nnet3", "cntk")
"""Families of models into which weights go back."""
_FAMILIES = (*_OF_ORIGINALS, "operators")


def to_torch(
    model: Model,
    folder: PathLike,
    scope: Scope | None = None,
    *,
    outputs: Sequence[str] | None = None,
    frame_subsampling_factor: int = 1,
    whole: bool = False,
) -> TorchModel:
    """Write a network as a PyTorch module; torch need not be installed.

    The folder gets `model.py` (an `nn.Module` whose layers have the names of the components or
    parameters, with `load` and `save`), `model.safetensors`, `config.json`, and `check.py`, which
    runs the module on recorded inputs. Of several outputs the module gives a dict. `torch.export`
    takes it with dynamic N and T. Values are float32.

    Of an nnet3 network the module takes [N, T, dim], and [N, dim] of an iVector where the network
    has one, and gives [N, ceil(T / frame_subsampling_factor), columns]: what `nnet3-compute` gives
    for an utterance as one chunk.

    Of a CNTK network it computes the outputs alone: criteria, labels and what only these need are
    left out. It takes each input as [N, T, ...] where the network looks along sequences, else as
    [N, ...]; a sample of CNTK's shape [a x b] is [b, a].

    Of a net of operators it computes what `to_onnx` does: losses, labels and all of training fall
    away, but dropout stays. An input declared [-1, ...] is [N, ...]; one that holds sequences is
    [N, T, ...], sequences of one length. Elementwise operators, also from plug-ins, are written
    from their scalar expressions; recurrent layers of a cell of PyTorch's are nn.LSTM, nn.GRU or
    nn.RNN.

    Args:
        model: an `Nnet`, an `AmNnetSimple`, a `CntkNet` or a `Network` of CNTK's, a NetBuilder, a
            Net, `opscope.load`'s result, or the path of a file with one: a model, a config, a
            saved net.
        folder: made where it is missing; files of these names in it are replaced.
        scope: holds the values of a net of operators that has none of its own; None: the default
            scope.
        outputs: names of output nodes, in CNTK's networks of any nodes, in nets of operators of
            any variables; None: all outputs.
        frame_subsampling_factor: of nnet3 alone: frames for one row of output, 3 for chain models.
        whole: of nnet3 alone: the outputs are one row each for all frames, as
            `nnet3-xvector-compute` gives it; nothing is repeated at the ends, so that T is at
            least the network's window.

    Raises:
        NotInTorchError: parts of the network have no form in PyTorch here; all are named.
        FormatError: the file cannot be read or is no such model, or the network was not trained.
        SaveError: the folder cannot be written.
        OpscopeError: an option is out of range or means nothing for the network, or there is no
            such output.
    """
    network = model
    name = ""
    if isinstance(model, str | os.PathLike):
        model_file = model_of_file(model, _FAMILIES)
        network, name = model_file.network, model_file.title
    nnet3_options = (
        (frame_subsampling_factor != 1, "frame_subsampling_factor"),
        (whole, "whole"),
    )
    if isinstance(network, Loaded):
        network, own = network
        scope = scope or own
    if isinstance(network, OpList) or hasattr(network, "op_list"):
        from .op_list.to_torch import net_to_torch

        _refuse(nnet3_options, "a net of operators")
        net = op_list_of(cast("HasOpList", network))
        arrays = held_values(net, scope if scope is not None else default_scope())
        return net_to_torch(net, arrays, folder, name, outputs=outputs)
    _refuse([(scope is not None, "scope")], "a network that holds its own values")
    if not isinstance(network, _cntk_types()):
        from .nnet3.to_torch import nnet3_to_torch

        return nnet3_to_torch(
            opened(cast("Nnet3Model", network)),
            folder,
            name,
            outputs=outputs,
            frame_subsampling_factor=frame_subsampling_factor,
            whole=whole,
        )
    from .cntk_nets import cntk_to_torch

    _refuse(nnet3_options, "a network of CNTK")
    return cntk_to_torch(cast("CntkNet", network), folder, name, outputs=outputs)


def _refuse(options: Iterable[tuple[bool, str]], what: str) -> None:
    """Refuse options that are given and mean nothing."""
    for given, option in options:
        if given:
            raise OpscopeError(f"{option} has no meaning for {what}")


def _cntk_types() -> tuple[type, ...]:
    """The classes of CNTK's networks that are written."""
    from ...cntk.network.network import Network
    from ...cntk.run.runtime import CntkNet

    return CntkNet, Network


def model_of_file(path: PathLike, families: Sequence[str] = _OF_ORIGINALS) -> OpenedModel:
    """The network in a file.

    Args:
        families: which it may be of.

    Raises:
        FormatError: it cannot be read, or holds none of these.
    """
    model = open_model(path, whole=True, use="to write as a PyTorch module")
    if model.family not in families:
        raise FormatError(
            f"{model.path}: {model.what}; a network of Kaldi's (.raw, .mdl) or CNTK's (.dnn, .cmf)"
            f"{' or a saved net (.pb)' * ('operators' in families)} is wanted"
        )
    return model
