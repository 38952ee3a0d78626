"""An ONNX model in another precision: float32 becomes float64, float16 or bfloat16 throughout."""

from __future__ import annotations

import numpy as np

from ....framework.base.dtypes import SINGLE
from ....proto import onnx_pb2 as pb
from .nested import all_graphs
from .reading import ModelFile
from .tensors import from_array, number_of, to_array

_FLOAT = pb.TensorProto.FLOAT
_TYPED = ("to", "dtype", "output_dtype", "stash_type")
"""Attributes of nodes that name an element type."""
_KEPT = {"Resize": (1, 2), "Upsample": (1,)}
"""Inputs that are float32 whatever the others are."""


def whole_file(file: ModelFile) -> pb.ModelProto:
    """The model with its external data inside.

    Raises:
        FormatError: external data is missing or lies outside of the folder.
    """
    return _with_tensors(file, SINGLE)


def in_dtype(file: ModelFile, dtype: np.dtype) -> pb.ModelProto:
    """The model with `dtype` for float32, external data inside; the file's own stays as it is.

    Raises:
        FormatError: as `whole_file`; or ONNX has no such dtype.
    """
    model = _with_tensors(file, dtype)
    number = number_of(dtype)
    for graph in all_graphs(model.graph):
        for info in (*graph.input, *graph.output, *graph.value_info):
            if info.type.tensor_type.elem_type == _FLOAT:
                info.type.tensor_type.elem_type = number
    for nodes in (*(g.node for g in all_graphs(model.graph)), *(f.node for f in model.functions)):
        for node in nodes:
            for attribute in node.attribute:
                if attribute.name in _TYPED and attribute.i == _FLOAT:
                    attribute.i = number
    return model


def _with_tensors(file: ModelFile, dtype: np.dtype) -> pb.ModelProto:
    model = pb.ModelProto()
    model.CopyFrom(file.model)
    for graph in all_graphs(model.graph):
        kept = {
            name
            for node in graph.node
            for at in _KEPT.get(node.op_type, ())
            for name in node.input[at : at + 1]
        }
        for tensor in graph.initializer:
            _convert(tensor, file, SINGLE if tensor.name in kept else dtype)
        for node in graph.node:
            own = SINGLE if kept.intersection(node.output) else dtype
            for attribute in node.attribute:
                for tensor in [attribute.t] if attribute.HasField("t") else attribute.tensors:
                    _convert(tensor, file, own)
            if node.op_type == "Constant" and own != SINGLE:
                _typed_constant(node, own)
    return model


def _convert(tensor: pb.TensorProto, file: ModelFile, dtype: np.dtype) -> None:
    """Put an array inside of the file, in `dtype` where it is float32."""
    is_external = tensor.data_location == pb.TensorProto.EXTERNAL
    if not is_external and (tensor.data_type != _FLOAT or dtype == SINGLE):
        return
    array = to_array(tensor, file.folder, f"{file.path}: {tensor.name}")
    name = tensor.name
    tensor.CopyFrom(from_array(array.astype(dtype) if tensor.data_type == _FLOAT else array, name))


def _typed_constant(node: pb.NodeProto, dtype: np.dtype) -> None:
    """A constant that is given as Python's numbers, which is float32, as an array."""
    for attribute in node.attribute:
        if attribute.name in ("value_float", "value_floats"):
            one = attribute.name == "value_float"
            array = np.array(attribute.f if one else list(attribute.floats), dtype)
            attribute.CopyFrom(
                pb.AttributeProto(name="value", type=pb.AttributeProto.TENSOR, t=from_array(array))
            )
