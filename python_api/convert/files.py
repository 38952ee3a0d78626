"""Conversion from file to file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...cntk.models.open_model import format_of, open_model
from ...cntk.models.v1 import write_model
from ...cntk.network.network import Network
from ...framework.base.atomic import PathLike
from ...framework.base.errors import FormatError, VariableError
from ...framework.base.untrusted.values import open_file
from ...nnet3.files.kaldi_io import Reader, is_nnet3
from ...nnet3.files.transition_model import TransitionModel
from ...nnet3.network.model import AmNnetSimple
from ...nnet3.network.nnet import Nnet
from .from_cntk import to_acoustic_model, to_nnet3
from .from_nnet3 import to_cntk

ACOUSTIC = ".mdl"
NNET3 = (".raw", ACOUSTIC)
CNTK = (".dnn", ".cmf", ".model")
_SNIFFED = 1 << 20

Frames = tuple[int, int]


def convert_file(
    source: PathLike,
    target: PathLike,
    outputs: Sequence[str] = (),
    context: Mapping[str, Frames] | None = None,
    transition_model: PathLike | None = None,
    binary: bool = True,
) -> list[str]:
    """Convert a model of CNTK to one of nnet3, or the other way. The source is known by its
    content, the target by its name: `.raw` or `.mdl` for nnet3, `.dnn`, `.cmf` or `.model` for
    CNTK's binary format (where the source may be one of CNTK's, too, of any version).

    Args:
        outputs, context: of a network of CNTK; see `to_nnet3`. The name of the input may be empty
            where there is only one, or one called `features`.
        transition_model: a file that begins with one, for `.mdl`.
        binary: how nnet3 is written.

    Returns:
        Lines that say what was written.

    Raises:
        FormatError: a file cannot be read or is of a kind that is not converted.
        UnknownOperatorError, ShapeError, VariableError: what is in it cannot be converted.
        SaveError: the target cannot be written.
    """
    source, target = os.fspath(source), os.fspath(target)
    suffix = os.path.splitext(target)[1].lower()
    if suffix not in (*NNET3, *CNTK):
        known = ", ".join((*NNET3, *CNTK))
        raise FormatError(f"{target}: the name must tell the format, one of {known}")
    if (suffix == ACOUSTIC) != (transition_model is not None):
        raise FormatError(f"{target}: a transition model goes with {ACOUSTIC}, and only with that")
    has_options = bool(outputs or context)
    kind = _kind(source)
    if suffix in NNET3 and kind == "nnet3":
        raise FormatError(f"{source}: nnet3 already; nnet3-copy and nnet3-am-copy copy it")
    if suffix in CNTK and has_options:
        raise FormatError(f"{target}: outputs and context are for networks that become nnet3")
    if kind == "nnet3":
        nnet, priors = _read_nnet3(source)
        network, frames = to_cntk(nnet, priors)
        network.name = os.path.splitext(os.path.basename(target))[0]
        write_model(network, target)
        return [f"{target}: CNTK binary model", *_cntk_lines(network, frames)]
    network = open_model(source).network
    if suffix in CNTK:
        write_model(network, target)
        return [f"{target}: CNTK binary model", *_cntk_lines(network, {})]
    named = {_main_input(network, name): frames for name, frames in (context or {}).items()}
    if transition_model is None:
        nnet = to_nnet3(network, outputs, named)
        nnet.write(target, binary)
        return [f"{target}: nnet3", *_nnet3_lines(nnet)]
    if len(outputs) > 1:
        raise FormatError(f"{target}: an acoustic model has one output")
    transitions = TransitionModel.read_from(Reader(transition_model))
    model = to_acoustic_model(network, transitions, *outputs, context=named, binary=binary)
    model.write(target)
    lines = [*_nnet3_lines(model.nnet), f"priors: {model.priors.size}"]
    return [f"{target}: nnet3 acoustic model", *lines]


def _kind(path: str) -> str:
    """ "nnet3" or "cntk"."""
    if is_nnet3(path):
        return "nnet3"
    try:
        with open_file(path) as file:
            kind = format_of(file.read(_SNIFFED))
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    if kind is None:
        raise FormatError(f"{path}: neither a model of nnet3 nor one of CNTK")
    return "cntk"


def _read_nnet3(path: str) -> tuple[Nnet, np.ndarray | None]:
    reader = Reader(path)
    if reader.peek_token() != "<TransitionModel>":
        return Nnet.read_from(reader), None
    model = AmNnetSimple.read_from(reader)
    return model.nnet, model.priors


def _main_input(network: Network, name: str) -> str:
    if name:
        return name
    features = network.groups["feature"]
    if len(features) == 1:
        return features[0].name
    if "features" in network:
        return "features"
    known = ", ".join(node.name for node in features) or "none"
    raise VariableError(f"whose frames are they? The network has the features {known}")


def _cntk_lines(network: Network, frames: Mapping[str, Frames]) -> Iterator[str]:
    for node in network.groups["feature"]:
        left, right = frames.get(node.name, (0, 0))
        window = f": contextWindow = {left}:{right}" if left or right else ""
        dim = node.shape[0] // (left + 1 + right)
        yield f"{node.name} [{node.shape[0]}]{window}{f' of {dim}' if window else ''}"
    names = ", ".join(f"{node.name} {list(node.shape)}" for node in network.groups["output"])
    yield f"outputs: {names}"
    yield f"{len(network)} nodes, {network.parameter_count()} parameters"


def _nnet3_lines(nnet: Nnet) -> Iterator[str]:
    for node in nnet.inputs():
        yield f"{node.name} [{node.dim}]"
    dims = nnet.node_dims()
    yield f"outputs: {', '.join(f'{node.name} [{dims[node.name]}]' for node in nnet.outputs())}"
    if nnet.is_simple():
        yield "context: {} before, {} after".format(*nnet.context())
    yield f"{len(nnet.components)} components, {nnet.num_parameters} parameters"
