"""ONNX files as models that all commands take."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.python.cached import cached_property
from ...framework.ir.op_list import OpList
from ..model.model import Asked, Feed, Model, Port, chosen
from ..model.net_models import NetModel, held_values
from .files.reading import ModelFile, read_model
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

    @property
    def desc(self) -> OpList:
        return self._shown[0]

    @property
    def arrays(self) -> Mapping[str, np.ndarray]:
        return self._shown[1]

    @property
    def dialect(self) -> str:
        return DIALECT

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


def _port(info: InputInfo) -> Port:
    return Port(info.name, info.shape or (), str(info.dtype or info.kind))


def open_model(path: str, asked: Asked) -> OnnxFile:
    """The model in an ONNX file.

    Raises:
        FormatError: it is damaged.
    """
    del asked
    return OnnxFile(read_model(path), path)
