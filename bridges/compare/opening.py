"""The form of a model that is given: a file of any kind that runs, or an object."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...cntk.run.runtime import CntkNet
from ...framework.base.dtypes import SINGLE, to_dtype
from ...framework.base.errors import VariableError, nearest
from ..inference.cases import OwnRun
from ..inference.cntk_nets import CntkRun
from ..inference.form import inference_form
from ..model.model import Model
from ..model.opening import open_model
from ..onnx.export.net import graph_of
from ..onnx.files.graph import Graph
from ..onnx.files.reading import ModelFile, parse_model
from ..onnx.files.writing import model_bytes
from ..onnx.from_nnet3.export import nnet3_graph
from ..onnx.importing.model import OnnxModel
from ..torch.to_torch import to_torch
from .cntk_nets import CntkNetwork
from .layers import RUNTIMES, Form, Wanted
from .nnet3_nets import Nnet3Net
from .onnx_nets import OnnxNet
from .op_nets import OpNet
from .torch_nets import TorchFolder

if TYPE_CHECKING:
    from ..model.nnet3_models import Nnet3Model
    from ..onnx.opened import OnnxFile

_OURS = ("", "opscope", "plain", "bf16")
_ONNX = ("onnxruntime", "onnx-reference")


def open_form(given: Any, wanted: Wanted) -> Form:
    """A model as it is to be run.

    Args:
        given: the path of a file or folder, or what `opscope.view` takes.

    Raises:
        FormatError: the file is missing, damaged or no model.
        VariableError: there is no such runtime or dtype, the model does not run in it, or its
            source would be executed, which was not allowed.
    """
    if wanted.runtime and wanted.runtime not in RUNTIMES:
        hint = nearest(wanted.runtime, RUNTIMES)
        raise VariableError(f"no runtime {wanted.runtime!r}{hint}; there are {', '.join(RUNTIMES)}")
    if wanted.dtype and to_dtype(wanted.dtype).kind not in "fV":
        raise VariableError(f"{wanted.dtype} is no dtype of floats")
    if isinstance(given, OnnxModel):
        given = given.path
    model = open_model(given, network=wanted.network, use="to compare")
    title = model.name
    if model.family == "torch":
        _only(title, wanted, ("", "torch"), "a PyTorch module")
        return TorchFolder(model.path, title, wanted)
    if model.family == "onnx":
        _only(title, wanted, (*_OURS, *_ONNX), "an ONNX file")
        return OnnxNet(cast("OnnxFile", model).file, title, wanted)
    if model.family == "description":
        raise VariableError(
            f"{title}: {model.what}, without parameters, does not run; saved nets, models of"
            " Kaldi's and CNTK's, ONNX files and folders of `opscope to-torch` are compared"
        )
    if wanted.runtime in _ONNX:
        return OnnxNet(_exported(model), title, wanted)
    if wanted.runtime == "torch":
        return _as_torch(model, wanted)
    return _ours(model, wanted)


def _only(title: str, wanted: Wanted, allowed: tuple[str, ...], what: str) -> None:
    if wanted.runtime not in allowed:
        runtimes = " or ".join(filter(None, allowed))
        raise VariableError(f"{title}: {what}, which runs in {runtimes}, not in {wanted.runtime}")


def _ours(model: Model, wanted: Wanted) -> Form:
    if model.family == "nnet3":
        return Nnet3Net(cast("Nnet3Model", model).nnet, model.name, wanted)
    if model.family == "cntk":
        return CntkNetwork(model.network, model.name, wanted)
    return OpNet(model.desc, model.arrays, model.name, wanted)


def _exported(model: Model) -> ModelFile:
    """A net of ours as an ONNX model, which is not checked: the comparison does that."""
    graph: Graph
    if model.family == "nnet3":
        graph = nnet3_graph(cast("Nnet3Model", model).nnet)
    elif model.family == "cntk":
        run = CntkRun(CntkNet(model.network))
        graph = graph_of(run.inference, run.arrays)
    else:
        arrays = {name: np.asarray(array) for name, array in model.arrays.items()}
        own = OwnRun(inference_form(model.desc, None), arrays)
        graph = graph_of(own.inference, own.arrays)
    return parse_model(model_bytes(graph), model.name, ".")


def _as_torch(model: Model, wanted: Wanted) -> Form:
    """An nnet3 network as the module that `to-torch` writes, from a folder that goes again."""
    if model.family != "nnet3":
        raise VariableError(f"{model.name}: only nnet3 networks have a form in PyTorch")
    if not wanted.run_code:
        raise VariableError(
            f"{model.name}: in torch it is run as Python source that `opscope to-torch` makes of"
            " it; say that it may be run: --run-code, or run_code=True"
        )
    with tempfile.TemporaryDirectory(prefix="opscope-compare-") as folder:
        to_torch(cast("Nnet3Model", model).nnet, folder)
        return TorchFolder(folder, model.name, wanted)


def coarsest(*forms: Form) -> np.dtype:
    """The dtype of the fewest digits among those that models compute in."""
    return min((form.dtype for form in forms), key=_digits, default=SINGLE)


def _digits(dtype: np.dtype) -> int:
    return 7 if dtype.name == "bfloat16" else np.finfo(dtype).nmant
