"""Writing ONNX files: whole or not at all, large weights as a file beside the model."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress

import numpy as np

from ....framework.base.errors import FormatError, SaveError
from ....framework.base.files.atomic import atomic_file, write_atomically
from ....framework.files.tensor_file import array_bytes
from ....proto import onnx_pb2 as pb
from .graph import Graph
from .reading import read_model
from .tensors import from_array

_MOST_INSIDE = (1 << 31) - (1 << 24)
"""Bytes of arrays that a message may have: protobuf ends at 2 GiB."""
_SMALL = 1024
"""Arrays up to so many bytes stay in the message: runtimes read shapes and axes from there."""
_ALIGNED = 64


def model_bytes(graph: Graph, description: str = "") -> bytes:
    """The file of a graph, with its arrays in it.

    Raises:
        SaveError: there are more than 2 GiB.
    """
    if sum(array.nbytes for array in graph.arrays.values()) > _MOST_INSIDE:
        raise SaveError("ONNX: arrays of more than 2 GiB must lie in a file of their own")
    model = graph.model(description)
    for name, array in graph.arrays.items():
        model.graph.initializer.append(from_array(array, name, nibbles=graph.nibbles.get(name)))
    return model.SerializeToString(deterministic=True)


def write_model(
    path: str | os.PathLike[str],
    graph: Graph,
    description: str = "",
    *,
    external: bool | None = None,
) -> list[str]:
    """Write a graph as an ONNX file.

    Args:
        path: of the file.
        graph: it.
        description: becomes the model's doc_string.
        external: whether arrays go into a file beside it, `NAME-<hash>.data`; None: only where they
            would not fit. The data of an older model of this path is removed.

    Returns:
        The files that were written.

    Raises:
        SaveError: one cannot be written; nothing is there then that was not before.
    """
    path = os.fspath(path)
    if external is None:
        external = sum(array.nbytes for array in graph.arrays.values()) > _MOST_INSIDE
    before = _data_files(path)
    if not external:
        write_atomically(path, model_bytes(graph, description))
        written = [path]
    else:
        written = [path, _write_beside(path, graph, description)]
    for old in before - set(written):
        with suppress(OSError):
            os.remove(old)
    return written


def _write_beside(path: str, graph: Graph, description: str) -> str:
    """Stream the arrays into their file, then write the model that names it."""
    model = graph.model(description)
    mark = hashlib.sha256()
    for name, array in graph.arrays.items():
        mark.update(name.encode())
        mark.update(array_bytes(array))
    data_path = f"{os.path.splitext(path)[0]}-{mark.hexdigest()[:12]}.data"
    with atomic_file(data_path) as file:
        at = 0
        for name, array in graph.arrays.items():
            outside = array.nbytes > _SMALL and array.dtype != object
            tensor = from_array(array, name, data=not outside, nibbles=graph.nibbles.get(name))
            if outside:
                file.write(b"\0" * (-at % _ALIGNED))
                at += -at % _ALIGNED
                file.write(array_bytes(array))
                _point(tensor, os.path.basename(data_path), at, array)
                at += array.nbytes
            model.graph.initializer.append(tensor)
    write_atomically(path, model.SerializeToString(deterministic=True))
    return data_path


def _point(tensor: pb.TensorProto, location: str, offset: int, array: np.ndarray) -> None:
    tensor.data_location = pb.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", array.nbytes)):
        tensor.external_data.add(key=key, value=str(value))


def _data_files(path: str) -> set[str]:
    """The data files that an older model of this path names and that `write_model` has written."""
    if not os.path.isfile(path):
        return set()
    try:
        graph = read_model(path).model.graph
    except FormatError:
        return set()
    stem = re.escape(os.path.basename(os.path.splitext(path)[0]))
    names = {
        entry.value
        for tensor in graph.initializer
        for entry in tensor.external_data
        if entry.key == "location" and re.fullmatch(rf"{stem}-[0-9a-f]{{12}}\.data", entry.value)
    }
    return {os.path.join(os.path.dirname(path), name) for name in names}
