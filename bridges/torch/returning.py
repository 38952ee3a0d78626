"""`weights_from_torch`: the weights of a PyTorch module back in a model file of Kaldi or CNTK."""

from __future__ import annotations

import os

from ...framework.base.atomic import PathLike
from ...framework.base.errors import FormatError
from ..recognise.kinds import KINDS
from ..recognise.recognising import kind_of
from .folder import config_in
from .to_torch import is_cntk


def weights_from_torch(folder: PathLike, original: PathLike, target: PathLike) -> list[str]:
    """Write a model file with the weights that a folder of `to_torch` holds now.

    Tensors that have not changed leave their component or parameter as it is, to the last bit; all
    else of the original stays (transition model, priors, statistics of nonlinearities; criteria,
    labels; learning rates). Statistics of Kaldi's batch normalisation take the module's means and
    variances; their count stays.

    Args:
        folder: with `config.json` and `model.safetensors`.
        original: the model file that the module was made of; none of CNTK 2.0.
        target: the file to write; not the original.

    Returns:
        The names of the components, or of CNTK's parameters, that changed.

    Raises:
        FormatError: a file cannot be read, or is not what the folder was made of.
        ShapeError: names or shapes of the tensors are not those of the original, or a number is
            not finite; all are named.
        OpscopeError: target is the original.
    """
    config, config_path = config_in(folder)
    of_cntk = is_cntk(original)
    wanted, made_of = "cntk" if of_cntk else "nnet3", config.get("model_type")
    if made_of != wanted:
        raise FormatError(
            f"{config_path}: model_type is {made_of!r}, but {os.fspath(original)} is a"
            f" {KINDS[kind_of(os.fspath(original))].title}: the module was not made of it"
        )
    if of_cntk:
        from .from_cntk.returning import cntk_weights_from_torch

        return cntk_weights_from_torch(folder, original, target)
    from .nnet3.returning import nnet3_weights_from_torch

    return nnet3_weights_from_torch(folder, original, target)
