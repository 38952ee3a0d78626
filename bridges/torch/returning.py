"""`weights_from_torch`: the weights of a PyTorch module back in a model file of Kaldi or CNTK."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from ...framework.base.errors import FormatError
from ...framework.base.files.atomic import PathLike
from ..model.opening import model_kind
from ..recognize.kinds import kind_named
from ..recognize.recognizing import check_name
from .folder import config_in, refuse_original
from .to_torch import model_of_file

if TYPE_CHECKING:
    from ..model.cntk_models import CntkModel
    from ..model.nnet3_models import Nnet3Model


def weights_from_torch(folder: PathLike, original: PathLike, target: PathLike) -> list[str]:
    """Write a model file with the weights that a folder of `to_torch` holds now.

    Tensors that have not changed leave their component or parameter as it is, to the last bit; all
    else of the original stays (transition model, priors, statistics of nonlinearities; criteria,
    labels; learning rates). Statistics of Kaldi's batch normalization take the module's means and
    variances; their count stays.

    Args:
        folder: with `config.json` and `model.safetensors`.
        original: the model file that the module was made of; none of CNTK 2.0.
        target: the file to write; not the original.

    Returns:
        The names of the components, or of CNTK's parameters, that changed.

    Raises:
        FormatError: a file cannot be read, or is not what the folder was made of.
        ShapeError: names or shapes of the tensors differ from the original, or a number is not
            finite; the message lists all.
        OpscopeError: target is the original.
    """
    config, config_path = config_in(folder)
    model = model_of_file(original)
    kind = model_kind(os.fspath(original))
    if os.path.isdir(original) or not kind_named(kind).suffixes:
        raise FormatError(f"{os.fspath(original)}: {kind_named(kind).title}: no model file")
    made_of = config.get("model_type")
    if made_of != model.family:
        raise FormatError(
            f"{config_path}: model_type is {made_of!r}, but {os.fspath(original)} is a"
            f" {kind_named(kind).title}: the module was not made of it"
        )
    check_name(os.fspath(target), kind)
    refuse_original(original, target)
    if model.family == "cntk":
        from .cntk_nets import cntk_weights_from_torch

        return cntk_weights_from_torch(folder, cast("CntkModel", model), target)
    from .nnet3.returning import nnet3_weights_from_torch

    return nnet3_weights_from_torch(folder, cast("Nnet3Model", model), target)
