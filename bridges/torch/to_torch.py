"""`to_torch`: a folder with a network of Kaldi's or CNTK's as a PyTorch module."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, Union, cast

from ...framework.base.atomic import PathLike
from ...framework.base.errors import FormatError, OpscopeError
from ...nnet3.network.for_inference import Model as Nnet3Model
from ...nnet3.network.vosk_folder import acoustic_model_of
from ..recognise.kinds import KINDS, NNET3
from ..recognise.recognising import kind_of
from .folder import TorchModel

if TYPE_CHECKING:
    from ...cntk.run.runtime import CntkNet

Model: TypeAlias = Union[Nnet3Model, "CntkNet"]
"""A network of Kaldi's or CNTK's, or the path of a model file of either."""


def to_torch(
    model: Model,
    folder: PathLike,
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

    Args:
        model: an `Nnet`, an `AmNnetSimple` or a `CntkNet`, or the path of a model file (.raw,
            .mdl; .dnn, .cmf, or one of CNTK 2.0).
        folder: made where it is missing; files of these names in it are replaced.
        outputs: names of output nodes, in CNTK's networks of any nodes; None: all outputs.
        frame_subsampling_factor: of nnet3 alone: frames for one row of output, 3 for chain models.
        whole: of nnet3 alone: the outputs are one row each for all frames, as
            `nnet3-xvector-compute` gives it; nothing is repeated at the ends, so that T is at
            least the network's window.

    Raises:
        NotInTorchError: parts of the network have no form in PyTorch here; all are named.
        FormatError: the file cannot be read or is no such model, or the network was not trained.
        SaveError: the folder cannot be written.
        OpscopeError: an option is out of range or means nothing for a network of CNTK, or there is
            no such output.
    """
    if not is_cntk(model):
        from .nnet3.to_torch import nnet3_to_torch

        return nnet3_to_torch(
            cast("Nnet3Model", model),
            folder,
            outputs=outputs,
            frame_subsampling_factor=frame_subsampling_factor,
            whole=whole,
        )
    from .from_cntk.to_torch import cntk_to_torch

    for given, option in (
        (frame_subsampling_factor != 1, "frame_subsampling_factor"),
        (whole, "whole"),
    ):
        if given:
            raise OpscopeError(f"{option} has no meaning for a network of CNTK")
    return cntk_to_torch(cast("PathLike | CntkNet", model), folder, outputs=outputs)


def is_cntk(model: Model) -> bool:
    """Whether a model is one of CNTK's; else it is one of Kaldi's.

    Raises:
        FormatError: a file cannot be read, or holds neither.
        OpscopeError: it is something else.
    """
    if not isinstance(model, str | os.PathLike):
        from ...cntk.run.runtime import CntkNet
        from ...nnet3.network.for_inference import opened

        if isinstance(model, CntkNet):
            return True
        opened(model)  # refuses what is no network
        return False
    path = os.fspath(model)
    kind = kind_of(path)
    if kind == "model":
        return True
    if kind in NNET3:
        return False
    what = KINDS[kind].title if kind else "of no known kind"
    told = f"{path}: {what}; a network of Kaldi's (.raw, .mdl) or CNTK's (.dnn, .cmf) is wanted"
    if kind == "vosk":
        told += f": {acoustic_model_of(path)}"
    raise FormatError(told)
