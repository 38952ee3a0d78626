"""ONNX files as models that all commands take."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, VariableError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.python.cached import cached_property
from ...framework.editing.operations import Edit
from ...framework.editing.patterns import no_match
from ...framework.ir.op_list import OpList, VarDecl
from ...proto import onnx_pb2 as pb
from ..model.model import Asked, Feed, Model, Port, chosen
from ..model.net_models import NetModel, held_values
from .editing import OnnxGraph, perform
from .files.dtypes import whole_file
from .files.reading import ModelFile, read_model
from .files.tensors import dtype_of, number_of
from .importing.graph import InputInfo, check_model
from .importing.model import OnnxModel, model_of
from .importing.shown import DIALECT, shown_model


class OnnxFile(Model):
    """A model of ONNX. It is looked at by its own nodes, which need not be known here.

    Attributes:
        file: as it was read.
    """

    family, what = "onnx", "an ONNX model"

    def __init__(self, file: ModelFile, path: str) -> None:
        super().__init__(path, os.path.basename(path))
        self.file = file
        self.checked = check_model(file)

    @cached_property
    def network(self) -> OnnxModel:
        return model_of(self.file)

    @cached_property
    def _shown(self) -> tuple[OpList, dict[str, np.ndarray]]:
        return shown_model(self.checked)

    def copy(self) -> OnnxFile:
        whole = ModelFile(
            self.file.path, self.file.folder, whole_file(self.file), dict(self.file.opsets)
        )
        copied = OnnxFile(whole, self.path)
        copied.notes += self.notes
        return copied

    def perform(self, edit: Edit) -> str:
        done = perform(OnnxGraph(self.file.model.graph, self._type_of), edit)
        for name in ("network", "_shown"):
            vars(self).pop(name, None)
        self.checked = check_model(self.file)
        return done

    def _type_of(self, name: str) -> pb.ValueInfoProto:
        """The type of a value: as the file tells it, or as a run with zeros does.

        Raises:
            OpscopeError: there is no such value, or the model does not run so.
        """
        graph = self.file.model.graph
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.name == name and info.type.WhichOneof("value"):
                return info
        feed = {
            info.name: np.zeros(
                [dim if isinstance(dim, int) else 2 for dim in info.shape or ()], info.dtype
            )
            for info in self.checked.inputs
        }
        values = self.network.values(feed)
        if not isinstance(values.get(name), np.ndarray):
            raise VariableError(no_match(name, values, "value"))
        told = pb.ValueInfoProto(name=name)
        tensor = told.type.tensor_type
        tensor.elem_type = number_of(values[name].dtype)
        tensor.shape.SetInParent()
        for axis in range(values[name].ndim):
            tensor.shape.dim.add(dim_param=f"{name}_{axis}")
        return told

    def check(self) -> None:
        self.checked = check_model(self.file)

    def save(self, path: str) -> None:
        data = self.file.model.SerializeToString(deterministic=True)
        write_atomically(path, data)

    @property
    def desc(self) -> OpList:
        return self._shown[0]

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        return self._shown[1]

    @property
    def dialect(self) -> str:
        return DIALECT

    def inferred(self) -> tuple[list[VarDecl], str]:
        """The values inside: their types in the file, else in the net that it becomes."""
        written = {name for node in self.checked.graph.nodes for name in node.outputs if name}
        written -= {port.name for port in self.outputs}
        listed = map(_declared, self.file.model.graph.value_info)
        known = {var.name: var for var in listed if var.shape is not None and var.name in written}
        missing = ""
        if written - known.keys():
            try:
                net = self.network.op_list()
            except OpscopeError as error:
                missing = str(error).removeprefix(f"{self.path}: ")
            else:
                known = {var.name: var for var in net.vars if var.name in written} | known
        return list(known.values()), missing

    @property
    def facts(self) -> list[tuple[str, str | int]]:
        return [("opset", str(self.checked.opset)), *sorted(self.checked.metadata.items())]

    @property
    def inputs(self) -> list[Port]:
        return [_port(info) for info in self.checked.inputs]

    @property
    def outputs(self) -> list[Port]:
        return [_port(info) for info in self.checked.outputs]

    def run(self, feed: Feed, fetch: Sequence[str] = ()) -> dict[str, Any]:
        """Values of outputs, or of any values of the outer graph; see `OnnxModel.run`."""
        outputs = [port.name for port in self.outputs]
        names = list(fetch) or outputs
        if not {*names} - {*outputs}:
            return self.network.run(feed, names)
        values = self.network.values(feed)
        chosen(self.path, {}, (), names, values)
        return {name: values[name] for name in names}

    def in_operators(self, rows: int) -> Model:
        """The model as one net for inputs of these rows: the last dimension that may vary has them,
        others are 1."""
        shapes = {}
        for info in self.checked.inputs:
            if info.shape is not None and info.kind == "tensor":
                free = [at for at, size in enumerate(info.shape) if not isinstance(size, int)]
                shapes[info.name] = tuple(
                    size if isinstance(size, int) else rows if at == free[-1] else 1
                    for at, size in enumerate(info.shape)
                )
        model = self.network
        net = model.op_list(shapes)
        return NetModel(net, held_values(net, model.scope), self.path, self.title)


def _declared(info: pb.ValueInfoProto) -> VarDecl:
    """The type of a value, as the file states it."""
    tensor = info.type.tensor_type
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    try:
        dtype = dtype_of(tensor.elem_type, info.name)
    except FormatError:  # strings, and what has no type
        dtype = None
    return VarDecl(info.name, shape if tensor.HasField("shape") else None, dtype)


def _port(info: InputInfo) -> Port:
    return Port(info.name, info.shape or (), str(info.dtype or info.kind))


def open_model(path: str, asked: Asked) -> OnnxFile:
    """The model in an ONNX file.

    Raises:
        FormatError: it is damaged.
    """
    del asked
    return OnnxFile(read_model(path), path)
