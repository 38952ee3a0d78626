"""`opscope.quantize`: any model with products of 8-bit integers, as ONNX or as a net of opscope."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....framework.base.errors import AttributeTypeError
from ...inference.cases import Case
from ...inference.form import ExportError
from ...recognize.recognizing import check_name
from ..files.graph import Graph
from ..files.reading import STANDARD, read_model
from ..files.tensors import to_array
from ..files.writing import write_model
from ..importing.model import from_onnx
from .exporting import Export, Feeds, export_file
from .int8 import WAYS, Int8Report, to_int8


def quantize(
    model: str | os.PathLike[str],
    path: str | os.PathLike[str],
    how: str = "dynamic",
    *,
    data: Feeds | None = None,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
) -> Int8Report:
    """Write a model whose products with constant matrices and filters are those of 8-bit integers.

        report = opscope.quantize("net.onnx", "small.onnx", "static", data=batches)
        print(report, report.table(), sep="\\n")

    Args:
        model: the path of an ONNX file, or of anything that `to_onnx` takes as one: a saved net, a
            model of Kaldi's nnet3 or of CNTK, the folder of a Vosk model.
        path: of the file to write: `.onnx`, or else a net for `opscope.load`.
        how: `dynamic`: the numbers that products read are rounded in scales that follow each run;
            `static`: in those of `data`; `weights`: they are floats, and matrices alone are
            integers.
        data: arrays by input, or a list of these. They tell the ranges (`static`), and what the
            errors of the report are measured on; without them these are of random inputs.
        shapes: of inputs of a net of opscope, of which -1 or a name may vary, where the
            model declares others as open, too.

    Returns:
        What it costs, as a whole and product by product.

    Raises:
        ExportError: `static` without data; there is no product to quantize; see `to_onnx`.
        FormatError: the file is none of these. In any case nothing is written then.
    """
    if how not in WAYS:
        raise AttributeTypeError(f"quantize: how is one of {', '.join(WAYS)}, not {how!r}")
    if how == "static" and not data:
        raise ExportError(
            "quantize: `static` wants calibration data (data=, --data): the ranges of what products"
            " read; `dynamic` and `weights` want none"
        )
    target = os.fspath(path)
    if target.endswith(".onnx"):
        return _written(os.fspath(model), target, how, data)
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "quantized.onnx")
        report = _written(os.fspath(model), made, how, data)
        from_onnx(made).save(target, dict(shapes or {}))
    return report


def _written(source: str, target: str, how: str, data: Feeds | None) -> Int8Report:
    if not source.endswith(".onnx"):
        return export_file(source, target, Export(inputs=data, int8=how)).int8
    check_name(target, "onnx")
    graph = _graph_of(source)
    runs = [data] if isinstance(data, Mapping) else list(data or ())
    model = from_onnx(source)
    given = runs or [_random(model)]
    cases: list[Case] = [(dict(feed), model.run(feed)) for feed in given]
    report = to_int8(graph, cases, how)
    write_model(target, graph)
    return report


def _graph_of(path: str) -> Graph:
    """The graph of an ONNX file, to be changed.

    Raises:
        ExportError: it has operators of other domains, or functions.
    """
    file = read_model(path)
    others = {node.domain for node in file.model.graph.node} - {*STANDARD}
    if others or file.model.functions:
        what = ", ".join(sorted(others)) or "functions of the file"
        raise ExportError(f"{path}: it has {what}; standard operators alone are quantized")
    message = file.model.graph
    arrays = {one.name: to_array(one, file.folder, path) for one in message.initializer}
    return Graph.of_message(message, file.opsets[""], arrays)


def _random(model: Any) -> dict[str, np.ndarray]:
    """Inputs of the declared shapes, whose open dimensions are 1."""
    rng = np.random.default_rng(0)
    feed = {}
    for info in model.inputs:
        shape = [dim if isinstance(dim, int) and dim > 0 else 1 for dim in info.shape or ()]
        floats = info.dtype.kind == "f"
        drawn = rng.normal(size=shape) if floats else rng.integers(0, 2, shape)
        feed[info.name] = drawn.astype(info.dtype)
    return feed
