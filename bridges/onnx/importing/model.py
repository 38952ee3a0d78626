"""An ONNX model that runs: `from_onnx`."""

from __future__ import annotations

import importlib
import os
import pkgutil

from ....framework.base.errors import FormatError
from ..files.reading import ModelFile, parse_model, read_model
from . import kinds
from .calls import CONTROL, KINDS
from .graph import Graph, Model, Node, check_model
from .imported import ImportedModel
from .invariants import without_invariants
from .row_writes import choose_rows

for _module in pkgutil.iter_modules(kinds.__path__):  # a table: each module adds its kinds
    importlib.import_module(f"{kinds.__name__}.{_module.name}")


class OnnxModel(ImportedModel):
    """A model that was read from an ONNX file.

    Attributes:
        path: of the file.
        inputs, outputs: names, dtypes and shapes, as declared.
        opset: version of the standard operators. metadata: the file's texts by key.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.opset = model.opset
        self.metadata = model.metadata

    def __repr__(self) -> str:
        nodes = len(self._model.graph.nodes)
        shown = ", ".join(info.name for info in self.inputs)
        return f"<OnnxModel {self.path}: opset {self.opset}, {nodes} nodes, inputs {shown}>"


def from_onnx(path: str | os.PathLike[str]) -> OnnxModel:
    """Read an ONNX model, to run and to train here.

    Raises:
        FormatError: the file is damaged, or holds operators that are not supported: all of these
            are named in one error.
    """
    return model_of(read_model(path))


def model_of_bytes(data: bytes, path: str = "model", folder: str = ".") -> OnnxModel:
    """The model of an ONNX file's bytes; see `from_onnx`."""
    return model_of(parse_model(data, path, folder))


def model_of(file: ModelFile) -> OnnxModel:
    """The model of a file that was read."""
    model = check_model(file)
    missing = list(dict.fromkeys(refused(model.graph)))
    if missing:
        shown = "\n  ".join(missing[:50])
        more = f"\n  and {len(missing) - 50} more" if len(missing) > 50 else ""
        raise FormatError(f"{file.path}: not supported:\n  {shown}{more}")
    choose_rows(model.graph, model.arrays)
    without_invariants(model.graph, model.arrays)
    return OnnxModel(model)


def refused(graph: Graph) -> list[str]:
    """The operators of a graph, and of graphs inside it, that are not known here."""
    reasons = []
    for node in graph.nodes:
        if (node.domain, node.op) not in KINDS and (node.domain or node.op not in CONTROL):
            reasons.append(_why(node))
        for inner in node.graphs():
            reasons += refused(inner)
    return reasons


def _why(node: Node) -> str:
    return node.title()
