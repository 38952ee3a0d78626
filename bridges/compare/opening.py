"""The form of a model that is given: a file of any kind that runs, or an object."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

from ...cntk.network.dialect import from_desc
from ...cntk.network.network import Network
from ...cntk.run.runtime import CntkNet
from ...framework.base.dtypes import SINGLE, to_dtype
from ...framework.base.errors import VariableError, nearest
from ...nnet3.network.nnet import Nnet
from ..onnx.export.cases import OwnRun
from ..onnx.export.cntk_nets import CntkRun
from ..onnx.export.net import graph_of, inference_form
from ..onnx.files.graph import Graph
from ..onnx.files.reading import ModelFile, parse_model, read_model
from ..onnx.files.writing import model_bytes
from ..onnx.from_nnet3.export import nnet3_graph
from ..onnx.importing.model import OnnxModel
from ..recognise.recognising import kind_of
from ..torch.to_torch import to_torch
from ..view.opening import Opened, open_net
from .cntk_nets import CntkNetwork
from .layers import RUNTIMES, Form, Wanted
from .nnet3_nets import Nnet3Net
from .onnx_nets import OnnxNet
from .op_nets import OpNet
from .torch_nets import TorchFolder, is_torch_folder

_OURS = ("", "opscope", "plain", "bf16")
_ONNX = ("onnxruntime", "onnx-reference")


def open_form(given: Any, wanted: Wanted) -> Form:
    """A model as it is to be run.

    Args:
        given: the path of a file or folder, or what `opscope.view` takes.

    Raises:
        FormatError: the file is missing, damaged or no model.
        VariableError: there is no such runtime or dtype, the model does not run in it, or its
            source would be executed, which nobody allowed.
    """
    if wanted.runtime and wanted.runtime not in RUNTIMES:
        hint = nearest(wanted.runtime, RUNTIMES)
        raise VariableError(f"no runtime {wanted.runtime!r}{hint}; there are {', '.join(RUNTIMES)}")
    if wanted.dtype and to_dtype(wanted.dtype).kind not in "fV":
        raise VariableError(f"{wanted.dtype} is no dtype of floats")
    path = os.fspath(given) if isinstance(given, (str, os.PathLike)) else ""
    if path and is_torch_folder(path):
        _only(path, wanted, ("", "torch"), "a PyTorch module")
        return TorchFolder(path, path, wanted)
    if isinstance(given, OnnxModel):
        path = given.path
    if path and os.path.isfile(path) and kind_of(path) == "onnx":
        _only(path, wanted, (*_OURS, *_ONNX), "an ONNX file")
        return OnnxNet(read_model(path), path, wanted)
    opened = open_net(given, network=wanted.network)
    title = path or opened.title
    if wanted.runtime in _ONNX:
        return OnnxNet(_exported(opened, title), title, wanted)
    if wanted.runtime == "torch":
        return _as_torch(opened, title, wanted)
    return _ours(opened, title, wanted)


def _only(title: str, wanted: Wanted, allowed: tuple[str, ...], what: str) -> None:
    if wanted.runtime not in allowed:
        told = " or ".join(filter(None, allowed))
        raise VariableError(f"{title}: {what}, which runs in {told}, not in {wanted.runtime}")


def _ours(opened: Opened, title: str, wanted: Wanted) -> Form:
    if isinstance(opened.network, Nnet):
        return Nnet3Net(opened.network, title, wanted)
    network = _network(opened)
    if network is not None:
        return CntkNetwork(network, title, wanted)
    if opened.dialect:
        raise VariableError(
            f"{title}: a description in the dialect {opened.dialect!r}, without parameters, does"
            " not run; saved nets, models of Kaldi's and CNTK's, ONNX files and folders of"
            " `opscope to-torch` are compared"
        )
    return OpNet(opened.net, opened.arrays, title, wanted)


def _network(opened: Opened) -> Network | None:
    """The network of CNTK's, where it is one."""
    if isinstance(opened.network, Network):
        return opened.network
    if opened.dialect != "cntk":
        return None
    network = from_desc(opened.net, opened.arrays)
    network.validate()
    return network


def _exported(opened: Opened, title: str) -> ModelFile:
    """A net of ours as an ONNX model, which is not checked: the comparison does that."""
    network = _network(opened)
    graph: Graph
    if isinstance(opened.network, Nnet):
        graph = nnet3_graph(opened.network)
    elif network is not None:
        run = CntkRun(CntkNet(network))
        graph = graph_of(run.inference, run.arrays)
    elif opened.dialect:
        raise VariableError(f"{title}: a description without parameters has no form in ONNX")
    else:
        arrays = {name: np.asarray(array) for name, array in opened.arrays.items()}
        own = OwnRun(inference_form(opened.net, None), arrays)
        graph = graph_of(own.inference, own.arrays)
    return parse_model(model_bytes(graph), title, ".")


def _as_torch(opened: Opened, title: str, wanted: Wanted) -> Form:
    """An nnet3 network as the module that `to-torch` writes, from a folder that goes again."""
    if not isinstance(opened.network, Nnet):
        raise VariableError(f"{title}: only nnet3 networks have a form in PyTorch")
    if not wanted.run_code:
        raise VariableError(
            f"{title}: in torch it is run as Python source that `opscope to-torch` makes of it;"
            " say that it may be run: --run-code, or run_code=True"
        )
    with tempfile.TemporaryDirectory(prefix="opscope-compare-") as folder:
        to_torch(opened.network, folder)
        return TorchFolder(folder, title, wanted)


def coarsest(*forms: Form) -> np.dtype:
    """The dtype of the fewest digits among those that models compute in."""
    return min((form.dtype for form in forms), key=_digits, default=SINGLE)


def _digits(dtype: np.dtype) -> int:
    return 7 if dtype.name == "bfloat16" else np.finfo(dtype).nmant
