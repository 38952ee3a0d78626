"""`opscope.quantize`: any model with weights or products of integers, as ONNX or as a net."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....framework.base.errors import AttributeTypeError
from ....framework.files.saved import save
from ....framework.ir.op_list import OpList
from ...inference.cases import Case, OwnRun, random_cases, real_cases
from ...inference.form import ExportError, inference_form
from ...inference.weight_blocks import BLOCK, FACTORS, in_blocks
from ...model.net_models import held_values
from ...recognize.recognizing import check_name
from ..files.graph import Graph
from ..files.reading import STANDARD, read_model
from ..files.tensors import to_array
from ..files.writing import write_model
from ..importing.model import from_onnx
from .exporting import Export, Feeds, export_file, open_model, to_onnx
from .int8 import WAYS, Int8Report, layer_errors, report_of, to_int8


def quantize(
    model: str | os.PathLike[str],
    path: str | os.PathLike[str],
    how: str = "dynamic",
    *,
    data: Feeds | None = None,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    weights: str = "",
    block: int = BLOCK,
) -> Int8Report:
    """Write a model with 8-bit integer products for all constant matrices and filters.

        report = opscope.quantize("net.onnx", "small.onnx", "static", data=batches)
        print(report, report.table(), sep="\\n")

    Args:
        model: the path of an ONNX file, or of anything that `to_onnx` takes as one: a saved net, a
            model of Kaldi's nnet3 or of CNTK, the folder of a Vosk model.
        path: of the file to write: `.onnx`, or else a net for `opscope.load`.
        how: `dynamic`: the numbers that products read are rounded in scales that follow each run;
            `static`: in scales from `data`; `weights`: they are floats, and matrices alone are
            integers.
        data: arrays by input, or a list of these. They tell the ranges (`static`), and what the
            errors of the report are measured on; without them these are of random inputs.
        shapes: of inputs of a net of opscope, of which -1 or a name may vary, if the model has
            further unknown sizes.
        weights: in place of `how`, matrices alone become smaller: `q8` or `q4`, integers with a
            scale for each `block` of elements, or `bf16`; see `quantize_weights`.

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
    if weights:
        return _in_blocks(os.fspath(model), target, weights, block, data, dict(shapes or {}))
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


def _in_blocks(
    source: str, target: str, weights: str, block: int, data: Feeds | None, shapes: dict[str, Any]
) -> Int8Report:
    net, arrays = _net_of(source, shapes)
    form = inference_form(net, use="quantize")
    small = in_blocks(form.net, arrays, weights, block)
    names = [*form.outputs, *small.products]
    run, small_run = (
        OwnRun(inference_form(one, names, use="quantize"), held)
        for one, held in ((form.net, arrays), (small.net, small.arrays))
    )
    given = [data] if isinstance(data, Mapping) else list(data or ())
    cases = real_cases(run, given) or random_cases(run, use="quantize")
    before = [outputs for _, outputs in cases]
    after = [small_run(inputs) for inputs, _ in cases]
    made = small.as_loaded(form.outputs)
    if target.endswith(".onnx"):
        to_onnx(made, target, outputs=form.outputs, inputs=[inputs for inputs, _ in cases])
    else:
        save(made.net, made.scope, target)
    layers = layer_errors(small.products, before, after)
    left = sum(op.type in FACTORS for op in small.net.ops)
    return report_of(form.outputs, cases, after, layers, left, weights)


def _net_of(source: str, shapes: dict[str, Any]) -> tuple[OpList, dict[str, np.ndarray]]:
    """What is in a file as a net of opscope, with its values."""
    with tempfile.TemporaryDirectory() as folder:
        if not source.endswith(".onnx"):
            model = open_model(source, whole=True, use="to quantize")
            if model.family == "operators":
                return model.desc, dict(model.arrays)
            made = os.path.join(folder, "floats.onnx")
            export_file(source, made, Export())
            source = made
        imported = from_onnx(source)
        net = imported.op_list(shapes)
        return net, held_values(net, imported.scope)


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
