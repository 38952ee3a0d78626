"""`to_onnx`: any net here, or the file of one, as a checked ONNX file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ....cntk.network.network import Network
from ....cntk.run.runtime import CntkNet
from ....framework.base.errors import FormatError, OpscopeError
from ....framework.base.files.atomic import PathLike, refuse_sources
from ....framework.base.scope import Scope, default_scope
from ....framework.files.saved import HasOpList, Loaded, op_list_of
from ....framework.ir.desc import INPUT, OUTPUT, PARAMETER, RECURRENT, make_var
from ....framework.ir.op_list import OpList
from ....framework.loops.recurrent.net import recurrent_op
from ....nnet3.network.model import AmNnetSimple
from ....nnet3.network.nnet import Nnet
from ....proto.net_pb2 import NetDesc
from ...inference.cases import Case, NetRun, OwnRun, random_cases, real_cases
from ...inference.cntk_nets import CntkRun
from ...inference.form import ExportError, inference_form
from ...model.net_models import held_values
from ...model.opening import open_model
from ...recognize.recognizing import check_name, files_of
from ..files.graph import OPSET, Graph
from ..files.writing import write_model
from .checking import (
    BOUND,
    Check,
    DiffersError,
    check_export,
    error_of,
    runtime_name,
    write_checked,
)
from .int8 import to_int8
from .net import graph_of
from .nnet3_nets import Nnet3Options, as_stream, nnet3_export

if TYPE_CHECKING:
    from ...model.nnet3_models import Nnet3Model

Feeds = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Arrays by input, or several of these."""


@dataclass(frozen=True)
class Export:
    """What is asked of an export; the arguments of `to_onnx`.

    Attributes:
        int8: how it is quantized, a word of `int8.WAYS`; "": not at all.
    """

    outputs: tuple[str, ...] | None = None
    opset: int = OPSET
    external: bool | None = None
    inputs: Feeds | None = None
    bound: float = BOUND
    name: str = ""
    int8: str = ""
    nnet3: Nnet3Options = Nnet3Options()

    @property
    def real(self) -> list[Mapping[str, Any]]:
        """The real inputs."""
        given = self.inputs
        return [] if given is None else [given] if isinstance(given, Mapping) else list(given)


def to_onnx(
    net: PathLike | HasOpList | OpList | NetDesc | Loaded | CntkNet | Network | Nnet | AmNnetSimple,
    path: PathLike,
    scope: Scope | None = None,
    *,
    outputs: Iterable[str] | str | None = None,
    opset: int = OPSET,
    external: bool | None = None,
    inputs: Feeds | None = None,
    bound: float = BOUND,
    name: str = "",
    int8: bool = False,
    streaming: bool = False,
    frame_subsampling_factor: int | None = None,
    priors: np.ndarray | bool | None = None,
    acoustic_scale: float = 1.0,
    whole: bool = False,
) -> Check:
    """Write a net in inference form as an ONNX file, once it has been run.

        check = opscope.to_onnx(b, "digits.onnx", scope, outputs=["scores"])
        print(check)

    Losses, labels, dropout and all of training fall away. An input declared [-1, ...] is [N, ...];
    one that holds sequences is [T, ...], one sequence. Of a CNTK network a sample [d1 x ... x dk]
    is [dk, ..., d1], and inputs of sparse rows are dense. An nnet3 network takes `input` [N, T,
    dim] and `ivector` [N, dim]; see `opscope.bridges.onnx.from_nnet3.export.nnet3_graph`.

    Args:
        net: a NetBuilder, Net, `opscope.load`'s result, CntkNet, Network, Nnet, AmNnetSimple, or
            the path of a saved net, of a model or config of Kaldi's nnet3, of a model of CNTK, its
            NDL or BrainScript, or of a Vosk model's folder.
        path: of the file to write.
        scope: holds the values of a net that has none of its own; None: the default scope.
        outputs: names of variables or nodes. None: those that are declared as outputs, else what
            losses judge or nothing else reads.
        opset: of the standard operators, 17 to 22.
        external: whether arrays lie in a file beside it; None: only above 2 GiB.
        inputs: real ones to check with, besides random ones: arrays by input, or a list of these.
            Where they are given, random ones that the net does not run on are left aside.
        bound: the largest error, `|onnx - here| / max(1, |here|)`.
        name: of the graph.
        int8: whether products with constant matrices are quantized (QDQ). The float graph is
            checked first; `Check.note` then gives the cost of the integers. The ranges of
            activations are those on `inputs`, so give real ones.
        streaming, frame_subsampling_factor, priors, acoustic_scale, whole: of nnet3 networks alone,
            see `nnet3_graph`. A stream is checked chunk by chunk. The default factor of a Vosk
            model's folder comes from its conf/model.conf; otherwise it is 1.

    Returns:
        The maximum error, and what has run the graph; `print` shows it.

    Raises:
        ExportError: operators without a form in ONNX (all are named), or an error above `bound`.
        FormatError: the file is none of these. VariableError: unknown names, missing values.
        SaveError: the file cannot be written. In any case nothing is written then.
    """
    names = (outputs,) if isinstance(outputs, str) else outputs
    asked = None if names is None else tuple(map(str, names))
    nnet3 = Nnet3Options(streaming, frame_subsampling_factor, priors, acoustic_scale, whole)
    export = Export(asked, opset, external, inputs, bound, name, "static" * int8, nnet3)
    if isinstance(net, (str, os.PathLike)):
        return export_file(net, path, export)
    if isinstance(net, (Nnet, AmNnetSimple)):
        return _nnet3(net, path, export)
    return _written(path, _run_of(net, scope, export), export)


def export_file(source: PathLike, path: PathLike, export: Export) -> Check:
    """Export what is in a file, by its kind.

    Raises:
        OpscopeError: see `to_onnx`.
    """
    name = os.fspath(source)
    refuse_sources(path, files_of(name))
    check_name(os.fspath(path), "onnx")
    model = open_model(name, whole=True, use="to export")
    if model.family == "nnet3":
        return _nnet3(model.network, path, export, cast("Nnet3Model", model).subsampling)
    if model.family == "cntk":
        return _written(path, CntkRun(CntkNet(model.network), export.outputs), export)
    if model.family == "operators":
        run = OwnRun(inference_form(model.desc, export.outputs), model.arrays)
        return _written(path, run, export)
    raise FormatError(f"{name}: {model.what}: neither a saved net nor a model of CNTK or nnet3")


def _nnet3(
    network: Nnet | AmNnetSimple, path: PathLike, export: Export, factor: int | None = None
) -> Check:
    if export.int8 and export.nnet3.streaming:
        raise ExportError("ONNX: int8 and streaming do not go together")
    options = export.nnet3
    if options.frame_subsampling_factor is None:
        options = replace(options, frame_subsampling_factor=1 if options.whole else factor or 1)
    graph, cases, in_double = nnet3_export(
        network, export.outputs, export.opset, export.name, options, export.real
    )
    try:
        return _checked(path, graph, cases, export)
    except DiffersError as error:
        return _judged(path, graph, cases, in_double, export, error)


def _judged(
    path: PathLike,
    graph: Graph,
    cases: Sequence[Case],
    in_double: Callable[[], list[Case]],
    export: Export,
    error: DiffersError,
) -> Check:
    """Check a graph against float64 where float32 differs: which of the two has rounded?

    Kaldi, and so our executor, sums statistics in float32, whose deviations are small differences
    of large numbers; the graph may be the one that is right.
    """
    try:
        wide = in_double()
    except OpscopeError:  # an operator has no float64
        raise error from None
    try:
        check = _checked(path, graph, wide, export)
    except DiffersError:  # from that, too
        raise error from None
    pairs = zip(cases, wide, strict=True)
    ours = max(error_of(case[1]["output"], best[1]["output"]).max() for case, best in pairs)
    note = f"compared with our float64, from which our float32, like Kaldi's, is {ours:.3g} away"
    return replace(check, note="; ".join(filter(None, (note, check.note))))


def _run_of(net: Any, scope: Scope | None, export: Export) -> NetRun:
    if isinstance(net, Network):
        net = CntkNet(net)
    if isinstance(net, CntkNet):
        return CntkRun(net, export.outputs)
    if isinstance(net, Loaded):
        net, own = net
        scope = scope or own
    op_list = op_list_of(net)
    held = scope if scope is not None else default_scope()
    if op_list.type == RECURRENT:
        op_list = _around(op_list, held)
    form = inference_form(op_list, export.outputs)
    return OwnRun(form, held_values(op_list, held))


def _around(net: OpList, scope: Scope) -> OpList:
    """A PLAIN net of a RECURRENT one: what the scope holds are parameters, in-links are inputs."""
    node = recurrent_op(net)
    inner = {var.name: var for step in net.steps for var in step.net.vars}
    links = {link.outer: link.inner for step in net.steps for link in step.in_links}
    memories = {m.boot: m.previous for step in net.steps for m in step.memories}
    net_around = OpList(net.name, ops=[node], metadata=dict(net.metadata))
    for name in dict.fromkeys(node.input_names()):
        held = scope.find(name)
        if name not in links and held is not None and held.inner is not None:
            net_around.vars.append(make_var(name, held.inner.shape, held.inner.dtype, PARAMETER))
            continue
        var = inner.get(links.get(name) or memories.get(name) or name)
        if var is None or var.shape is None or var.dtype is None:
            raise ExportError(
                f"ONNX: recurrent net {net.name!r}: the shape of {name!r} is not known; declare"
                " its inner variable in the step net"
            )
        declared = make_var(name, var.shape, var.dtype, INPUT)
        net_around.vars.append(declared.changed(sequence_levels=int(name in links)))
    outputs = [link.outer for step in net.steps for link in step.out_links]
    written = dict.fromkeys(name for name in node.output_names() if name)
    net_around.vars += [make_var(n, None, None, OUTPUT if n in outputs else 0) for n in written]
    return net_around


def _written(path: PathLike, run: NetRun, export: Export) -> Check:
    """Build the graph, run it, write it."""
    if changed := export.nnet3.changed():
        raise OpscopeError(f"{changed[0]!r} has a meaning for nnet3 networks alone")
    form = run.inference
    graph: Graph = graph_of(form, run.arrays, opset=export.opset, name=export.name)
    cases: list[Case] = real_cases(run, export.real)
    try:
        cases += random_cases(run)
    except ExportError:
        if not export.real:
            raise
    return _checked(path, graph, cases, export)


def _checked(path: PathLike, graph: Graph, cases: Sequence[Case], export: Export) -> Check:
    """Run a graph, write it; its cases begin with the real inputs."""
    if not export.int8:
        around = partial(as_stream, graph) if export.nnet3.streaming else None
        bound, external = export.bound, export.external
        return write_checked(path, graph, cases, bound=bound, external=external, around=around)
    error = check_export(graph, cases, export.bound)
    count = len(export.real)
    report = to_int8(graph, cases[:count] or cases, export.int8)
    write_model(path, graph, external=export.external)
    is_real = count or export.int8 != "static"
    ranges = "" if is_real else " (ranges of random inputs: give real ones)"
    nodes = len(graph.message.node)
    return Check(error, runtime_name(), len(cases), nodes, f"{report}{ranges}", report)
