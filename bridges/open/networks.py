"""What is reported of models: Kaldi's, CNTK's, opscope's and ONNX models."""

from __future__ import annotations

import os
from collections import Counter
from shlex import quote
from typing import TYPE_CHECKING, cast

from ...framework.base.errors import FormatError, OpscopeError, ShapeError
from ...framework.base.untrusted.opener import read_file
from ...framework.base.untrusted.values import shown, whole_number
from ...nnet3.network.vosk_folder import acoustic_model_of
from ..recognize.recognizing import check_language
from .info import FileInfo, first_line, listed, not_finite

if TYPE_CHECKING:
    from ...nnet3.components.base.component import Component
    from ...nnet3.network.model import AmNnetSimple
    from ..model.cntk_models import CntkModel
    from ..model.model import Model
    from ..model.nnet3_models import Nnet3Model
    from ..onnx.opened import OnnxFile

_FOR_ANY = ("view", "show", "verify")
"""Commands for models of ONNX whose operators need not be known here."""
_BESIDE = "frame_subsampling_factor"
_MOST_READS = 2000  # to look for the context of a network that reads more takes minutes
_RECURRENT = ("PastValue", "FutureValue")


# -- Kaldi


def nnet3(info: FileInfo) -> None:
    """A raw network, an acoustic model, or a config or xconfig."""
    from ...nnet3.network.model import AmNnetSimple

    if info.kind in ("config", "xconfig"):
        try:
            tell_nnet(info, info.model)
        except OpscopeError as error:
            info.unusual.append(f"no network can be made of it alone: {first_line(error)}")
            return
        info.facts.append(("note", "its parameters are drawn when a network is made of it"))
        return
    model = cast("Nnet3Model", info.model)
    info.version = "binary" if model.binary else "text"
    tell_nnet(info, model)
    if isinstance(model.network, AmNnetSimple):
        _tell_acoustic(info, model.network)
    info.subsampling = _subsampling_beside(
        acoustic_model_of(info.path) if info.kind == "vosk" else info.path
    )


def _tell_acoustic(info: FileInfo, model: AmNnetSimple) -> None:
    """Facts about what an acoustic model has besides its network."""
    from ...kaldi.files.kaldi_io import Reader
    from ...kaldi.files.transition_model import TransitionModel

    transitions = TransitionModel.read_from(
        Reader(model.transition_model, name=info.path, binary=model.binary)
    )
    tell_transitions(info, transitions)
    info.facts.append(("priors", f"{model.priors.size:,}" if model.priors.size else "none"))
    stored = model.left_context, model.right_context
    if info.context is not None and stored != info.context:
        info.unusual.append("the file states the context {}, {}".format(*stored))


def tell_nnet(info: FileInfo, model: Model) -> None:
    """Facts about a network of Kaldi's."""
    from ...nnet3.draw.summary import summary_lines

    nnet = cast("Nnet3Model", model).nnet
    dims = nnet.node_dims()
    info.inputs = model.inputs
    info.outputs = model.outputs
    info.parameters = nnet.num_parameters
    info.types = dict(Counter(component.type for component in nnet.components.values()))
    info.facts.append(("size", f"{len(nnet.nodes)} nodes, {len(nnet.components)} components"))
    lines = summary_lines(nnet.nodes, nnet.components, dims, nnet.outputs(), "")
    info.unusual += [text for text in map(_unusual, lines) if text]
    wide = [name for name, each in nnet.components.items() if _reads(each) > _MOST_READS]
    if wide:
        info.facts.append(("context", f"not looked for: {listed(wide)} reads very many frames"))
    elif nnet.is_simple():
        try:
            info.context = nnet.context()
        except ShapeError as error:
            info.facts.append(("context", f"unknown: {first_line(error)}"))
    if (period := nnet.modulus()) > 1:
        info.facts.append(("period", f"the network repeats itself every {period} frames"))


def _unusual(line: str) -> str:
    name, _, text = line.partition(" ")
    return text.strip() if name == "unusual" else ""


def _reads(component: Component) -> int:
    """Frames that one frame of statistics reads; other components read few."""
    from ...nnet3.components.statistics import StatisticsPoolingComponent

    if not isinstance(component, StatisticsPoolingComponent):
        return 0
    return (component.left_context + component.right_context) // component.input_period


def tell_transitions(info: FileInfo, model: object) -> None:
    """Facts about a transition model."""
    from ...kaldi.files.transition_model import TransitionModel

    assert isinstance(model, TransitionModel)
    pdfs = int(model.tuples[:, 2:].max()) + 1
    info.facts.append(
        (
            "transitions",
            f"{len(model.phones):,} phones, {pdfs:,} pdfs, {len(model.tuples):,} states",
        )
    )


def _subsampling_beside(path: str) -> int | None:
    """What the file that Kaldi's scripts put beside a model says."""
    beside = os.path.join(os.path.dirname(path), _BESIDE)
    if not os.path.isfile(beside):
        return None
    text = read_file(beside)[:64].decode("utf-8", "replace").strip()
    return whole_number(text, beside, 1)


# -- CNTK


def cntk(info: FileInfo) -> None:
    """A model of CNTK's."""
    model = cast("CntkModel", info.model)
    info.version = model.format
    tell_network(info, model)


def cntk_script(info: FileInfo) -> None:
    """A config or a description of networks."""
    from ...cntk.programs.files import networks_of
    from ..model.cntk_models import CntkModel

    try:
        check_language(info.path, info.kind)
        networks = networks_of(info.path)
    except OpscopeError as error:
        info.unusual.append(f"no network can be made of it alone: {first_line(error)}")
        return
    info.facts.append(("networks", listed(list(networks)) or "none"))
    if len(networks) == 1:
        tell_network(info, CntkModel(next(iter(networks.values()))))


def tell_network(info: FileInfo, model: CntkModel) -> None:
    """Facts about a network of CNTK's."""
    network = model.network
    info.inputs = model.inputs
    info.outputs = model.outputs
    info.parameters = network.parameter_count()
    info.types = dict(Counter(node.operation for node in network.nodes.values()))
    info.facts.append(("size", f"{len(network)} nodes, {network.precision}"))
    memories = sum(info.types.get(name, 0) for name in _RECURRENT)
    if memories:
        info.facts.append(("recurrent", f"{memories} memories, {len(network.loops)} loops"))
    if not network.groups["output"]:
        info.unusual.append("no output node is named")
    values = {node.name: node.value for node in network.nodes.values() if node.value is not None}
    info.unusual += not_finite(values)


def cntk_checkpoint(info: FileInfo) -> None:
    """State of a training of CNTK's."""
    from ...cntk.models.checkpoint import read_checkpoint

    state = read_checkpoint(info.path)
    numbers = sum(gradient.size for gradient in state.gradients)
    info.facts += [
        ("state", f"after {state.samples} samples, criterion {state.criterion:.6g}"),
        ("rate", f"{state.rate:.6g} for a sample"),
        ("gradients", f"{len(state.gradients)} smoothed gradients, {numbers:,} numbers"),
    ]


# -- opscope


def saved(info: FileInfo) -> None:
    """A net that opscope saved, or a checkpoint."""
    import math

    from ...framework.files.checkpoint import SUFFIX, read_checkpoint
    from ...framework.files.saved import load_marked, paths_of, verify_parameters
    from ...framework.runtime.initialize import persistent_vars
    from ..model.net_models import NetModel

    beside = True
    if info.kind == "checkpoint":
        if not info.path.endswith(SUFFIX):
            raise FormatError(f"{info.path}: a checkpoint, which must be called NAME{SUFFIX}")
        checkpoint = read_checkpoint(info.path)
        net, state = checkpoint.op_list, checkpoint.state
        info.facts += [
            (name, f"{state[name]}") for name in ("epoch", "step") if type(state.get(name)) is int
        ]
        info.unusual += not_finite(checkpoint.values)
    else:
        if not info.path.endswith(".pb"):
            raise FormatError(f"{info.path}: a net of opscope, which must be called NAME.pb")
        net, mark = load_marked(info.path)
        beside = os.path.isfile(paths_of(info.path)[1])
        info.facts.append(("numbers", "beside it" if beside else "not there, the net alone"))
        info.unusual += verify_parameters(info.path, net, mark)
    info.version = f"format {net.format_version}"
    dialect = net.metadata.get("dialect", "")
    if dialect:
        info.title += f", in the dialect {shown(dialect)}"
    if info.kind == "net":
        _keep_commands(info, dialect, runs=bool(net.ops) and beside)
    model = NetModel(net, {})
    info.inputs = model.inputs
    info.outputs = model.outputs
    held = persistent_vars(net)
    info.parameters = sum(math.prod(max(dim, 0) for dim in var.shape or ()) for var in held)
    info.types = dict(Counter(op.type for op in net.ops))
    info.facts.append(("size", f"{len(net.ops)} operators, {len(net.vars)} variables"))


def _keep_commands(info: FileInfo, dialect: str, *, runs: bool) -> None:
    """Leave out what does not take a net in a dialect, or one that does not run.

    Args:
        runs: whether it computes something, and its numbers are there.
    """
    left_out = set[str]()
    if not runs or dialect:
        left_out |= {"run", "convert"} | ({"summary"} if dialect else set())
    if not runs or dialect not in ("", "nnet3", "cntk"):
        left_out |= {"edit", "compare", "to-onnx", "score"}
    info.commands = [text for text in info.commands if text.split()[1] not in left_out]
    form = {"nnet3": "raw", "cntk": "dnn"}.get(dialect)
    if form and runs:
        info.commands.append(f"opscope convert {info.path} OUT.{form}")


def safetensors(info: FileInfo) -> None:
    """Named arrays."""
    import math

    from ...framework.files.tensor_file import TensorFile

    file = TensorFile(info.path)
    specs = {name: file.spec(name) for name in file}
    count = sum(math.prod(shape) for shape, _ in specs.values())
    info.facts.append(("arrays", f"{len(specs)}, {count:,} numbers"))
    info.types = dict(Counter(str(dtype) for _, dtype in specs.values()))
    for name, text in list(file.metadata.items())[:4]:
        info.facts.append(("metadata", f"{shown(name)}: {shown(text)}"))
    net = info.path.removesuffix(".safetensors") + ".pb"
    if net != info.path and os.path.isfile(net):
        info.facts.append(("net", net))
        info.commands.insert(0, f"opscope open {net}")


# -- ONNX


def onnx(info: FileInfo) -> None:
    """A model of ONNX."""
    from ..onnx.importing.model import refused

    opened = cast("OnnxFile", info.model)
    model = opened.checked
    proto = opened.file.model
    info.version = f"IR {proto.ir_version}, " + ", ".join(
        f"opset {version}" if not domain else f"{shown(domain)} {version}"
        for domain, version in list(opened.file.opsets.items())[:4]
    )
    if proto.producer_name:
        info.facts.append(
            ("made by", f"{shown(proto.producer_name)} {proto.producer_version[:40]}")
        )
    info.types = dict(Counter(node.op_type for node in proto.graph.node))
    info.facts.append(("size", f"{len(proto.graph.node)} nodes"))
    info.inputs = opened.inputs
    info.outputs = opened.outputs
    info.parameters = sum(array.size for array in model.arrays.values())
    info.facts += [
        ("metadata", f"{shown(name)}: {shown(text)}")
        for name, text in list(model.metadata.items())[:4]
    ]
    info.unusual += not_finite(model.arrays)
    if unknown := list(dict.fromkeys(refused(model.graph))):
        info.unusual.append(f"not supported here: {listed(unknown)}")
        info.commands = [text for text in info.commands if text.split()[1] in _FOR_ANY]
    else:
        free = [v for v in model.inputs if not all(isinstance(d, int) for d in (v.shape or ())[1:])]
        shapes = "".join(f" --shape {quote(value.name)}=N,N,..." for value in free)
        info.commands.append(f"opscope convert {info.path} OUT.pb{shapes}")
        info.commands.append(f"python: opscope.from_onnx({info.path!r})")
