"""The models that can score: which kind a file is of."""

from __future__ import annotations

import hashlib
import os

from ...bridges.recognise.kinds import KINDS, NNET3
from ...bridges.recognise.recognising import kind_of
from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.untrusted.opener import is_missing, open_file
from ...framework.files.saved import load_desc, paths_of
from .options import ScoreOptions
from .scorer import Scorer

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
    kind = _kind_of(path)  # only the modules of that kind are imported: workers start quickly
    if kind in ("nnet3", "saved nnet3"):
        from ...nnet3.inference.saved import load_nnet
        from .of_nnet3 import Nnet3Scorer

        options.check_kind("an nnet3 model", nnet3=True)
        return Nnet3Scorer(path if kind == "nnet3" else load_nnet(path), options)
    if kind == "cntk":
        from .of_cntk import CntkScorer

        options.check_kind("a model of CNTK's", nnet3=False)
        return CntkScorer(path, options)
    if kind == "onnx":
        from .of_onnx import OnnxScorer

        options.check_kind("a model of ONNX", nnet3=False)
        if "rows_per_batch" in options.changed():
            raise OpscopeError("--rows-per-batch has no meaning for a model of ONNX")
        return OnnxScorer(path, options)
    from .of_nets import NetScorer

    options.check_kind("a saved net", nnet3=False)
    return NetScorer(path, options)


def model_digest(path: str) -> str:
    """SHA-256 of the files that a model is made of.

    Raises:
        FormatError: one cannot be read.
    """
    files = [path] if os.path.isfile(path) and not path.endswith(".pb") else list(paths_of(path))
    if os.path.isfile(path) and kind_of(path) == "onnx":
        from .of_onnx import data_files

        files += data_files(path)
    found = hashlib.sha256()
    for name in files:
        try:
            with open_file(name) as file:
                while piece := file.read(_PIECE):
                    found.update(piece)
        except FormatError as error:
            if name == files[0] or not is_missing(error):
                raise
    return found.hexdigest()


def _kind_of(path: str) -> str:
    """ "nnet3" and "cntk", "saved nnet3" of a net in that dialect, "onnx"; else "net"."""
    kind = kind_of(path) if os.path.exists(path) else ""
    if kind in NNET3:
        return "nnet3"
    if kind in ("model", "onnx"):
        return "cntk" if kind == "model" else kind
    net = paths_of(path)[0]
    if not os.path.exists(path) and not os.path.isfile(net):
        raise FormatError(f"{path}: no such file; want {ACCEPTED}")
    if kind != "net" and path != net and os.path.exists(path):
        told = f" ({KINDS[kind].title})" if kind else ""
        raise FormatError(f"{path}: no model that can be scored{told}; want {ACCEPTED}")
    dialect = load_desc(path).metadata.get("dialect", "")
    return {"nnet3": "saved nnet3", "cntk": "cntk"}.get(dialect, "net")
