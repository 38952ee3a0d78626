"""The models that can score: which kind a file is of."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ...bridges.model.opening import model_kind, open_model
from ...bridges.recognize.kinds import kind_named
from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.untrusted.opener import is_missing, no_such_file, open_file
from ...framework.files.saved import paths_of
from ...nnet3.network.vosk_folder import acoustic_model_of
from .options import ScoreOptions
from .scorer import Scorer

if TYPE_CHECKING:
    from ...bridges.model.model import Model
    from ...bridges.model.net_models import NetModel
    from ...bridges.model.nnet3_models import Nnet3Model

ACCEPTED = (
    "an nnet3 model of Kaldi's (raw or .mdl), a model of CNTK's or of ONNX, or a net that opscope"
    " saved (.pb)"
)
_PIECE = 1 << 22


def open_scorer(path: str, options: ScoreOptions) -> Scorer:
    """The model of a file.

    Raises:
        FormatError: it is missing, damaged, or of a kind that is not taken.
        OpscopeError: an option has no meaning for it, or is wrong.
    """
    _kind_of(path)
    model = open_model(path, whole=True, use="to score")
    if model.family not in _SCORERS:
        raise FormatError(f"{path}: {model.what}: no model that can be scored; want {ACCEPTED}")
    what, scorer = _SCORERS[model.family]
    options.check_kind(what, nnet3=model.family == "nnet3")
    return scorer(model, options)


# Only the modules of one kind are imported: workers start quickly.


def _nnet3(model: Model, options: ScoreOptions) -> Scorer:
    from .of_nnet3 import Nnet3Scorer

    factor = cast("Nnet3Model", model).subsampling
    if factor and "frame_subsampling_factor" not in options.changed():
        options = replace(options, frame_subsampling_factor=factor)
    return Nnet3Scorer(model.network, options)


def _cntk(model: Model, options: ScoreOptions) -> Scorer:
    from .of_cntk import CntkScorer

    return CntkScorer(model.network, model.path, options)


def _onnx(model: Model, options: ScoreOptions) -> Scorer:
    from .of_onnx import OnnxScorer

    if "rows_per_batch" in options.changed():
        raise OpscopeError("--rows-per-batch has no meaning for a model of ONNX")
    return OnnxScorer(model.network, options)


def _net(model: Model, options: ScoreOptions) -> Scorer:
    from .of_nets import NetScorer

    return NetScorer(cast("NetModel", model).load(), model.path, options)


_SCORERS: dict[str, tuple[str, Callable[[Model, ScoreOptions], Scorer]]] = {
    "nnet3": ("an nnet3 model", _nnet3),
    "cntk": ("a model of CNTK's", _cntk),
    "onnx": ("a model of ONNX", _onnx),
    "operators": ("a saved net", _net),
}
"""What options call a model of each family, and what makes a scorer of it."""


def model_digest(path: str) -> str:
    """SHA-256 of the files that a model is made of.

    Raises:
        FormatError: one cannot be read.
    """
    kind = _kind_of(path)
    files = [acoustic_model_of(path) if kind == "vosk" else path]
    if kind == "net":
        files = [*paths_of(path)]
    elif kind == "onnx":
        from .of_onnx import data_files

        files += data_files(path)
    sha = hashlib.sha256()
    for name in files:
        try:
            with open_file(name) as file:
                while piece := file.read(_PIECE):
                    sha.update(piece)
        except FormatError as error:
            if name == files[0] or not is_missing(error):
                raise
    return sha.hexdigest()


def _kind_of(path: str) -> str:
    """The kind of a model that can be scored."""
    kind = model_kind(path)
    if kind == "net" and not any(map(os.path.exists, (path, paths_of(path)[0]))):
        raise no_such_file(path, f"; want {ACCEPTED}")
    row = kind_named(kind) if kind else None
    if row is None or not row.suffixes:  # others hold no numbers that were saved as a model
        title = f" ({row.title})" if row else ""
        raise FormatError(f"{path}: no model that can be scored{title}; want {ACCEPTED}")
    return kind
