"""What can be looked at: files by their kind, and objects; as an op list with its arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.errors import FormatError, VariableError, nearest
from ...framework.base.scope import Scope
from ...framework.files.checkpoint import SUFFIX, read_checkpoint
from ...framework.files.saved import HasOpList, load_desc, load_parts, op_list_of, paths_of
from ...framework.ir.op_list import OpList
from ...framework.runtime.initialize import persistent_vars
from ...nnet3.network.vosk_folder import acoustic_model_of
from ..recognise.recognising import check_language, kind_of, no_net
from .graph import Facts
from .texts import count_text

if TYPE_CHECKING:
    from ...cntk.network.network import Network
    from ...nnet3.network.nnet import Nnet

_KALDI = ("nnet3", "acoustic model", "transition model", "config", "xconfig", "vosk")
_CNTK = ("model", "cntk config", "ndl", "mel", "brainscript")


@dataclass
class Opened:
    """A net to look at.

    Attributes:
        net: in operators, or in the dialect `nnet3` or `cntk`.
        arrays: its parameters and states by variable.
        title: the name of the file, or of the net.
        facts: about the whole net.
        network: of Kaldi's or CNTK's, where it is one.
    """

    net: OpList
    arrays: Mapping[str, np.ndarray]
    title: str
    facts: Facts = field(default_factory=list)
    network: Nnet | Network | None = None

    @property
    def dialect(self) -> str:
        """`nnet3`, `cntk`, another dialect, or "" for operators that run."""
        return self.net.metadata.get("dialect", "")


def open_net(given: Any, scope: Scope | None = None, network: str = "") -> Opened:
    """A net from a file or an object.

    Args:
        given: the path of a file, or a builder, a net, what `load` gave, a description, a network
            of Kaldi's or of CNTK's.
        scope: holds the values of a net that is given without them.
        network: the command of a config of CNTK's whose network is meant, where it has several.

    Raises:
        FormatError: the file is missing, damaged, or holds no single net, or none of that name.
        VariableError: the object is no net.
    """
    if isinstance(given, (str, os.PathLike)):
        return _file(os.fspath(given), network)
    if network:
        raise VariableError(f"network={network!r} is for files: {type(given).__name__} is one net")
    from ...cntk.network.network import Network
    from ...nnet3.network.nnet import Nnet

    within = getattr(given, "nnet", None) or getattr(given, "network", None)
    for found in (given, within):
        if isinstance(found, Nnet):
            return _nnet(found, "nnet3 network")
        if isinstance(found, Network):
            return _network(found, found.name or "CNTK network")
    if isinstance(given, tuple) and len(given) == 2:  # what `load` gives: a net and its scope
        given, scope = given
    net = op_list_of(cast("HasOpList", given))
    held = _held(net, scope) if scope is not None else {}
    return _operators(net, held, net.name or "net")


def _held(net: OpList, scope: Scope) -> dict[str, np.ndarray]:
    """The parameters and states that have a value in a scope."""
    if not isinstance(scope, Scope):
        raise VariableError(f"the values of a net are in an opscope.Scope, not in {scope!r}")
    found = {}
    for var in persistent_vars(net):
        variable = scope.find(var.name)
        if variable is not None and variable.inner is not None:
            found[var.name] = to_host(variable.array)
    return found


def _operators(net: OpList, arrays: Mapping[str, np.ndarray], title: str) -> Opened:
    total = sum(array.size for array in arrays.values())
    facts = [("parameters and states", count_text(total))] if arrays else []
    return Opened(net, arrays, title, facts)


def _nnet(nnet: Nnet, title: str) -> Opened:
    lines = [line.partition(" ") for line in nnet.summary().splitlines()]
    facts = [(name, text.strip()) for name, _, text in lines]
    return Opened(nnet.to_desc(), nnet.arrays(), title, facts, nnet)


def _network(network: Network, title: str) -> Opened:
    from ...cntk.network.dialect import parameter_arrays, to_desc

    facts = [
        ("nodes", str(len(network.nodes))),
        ("parameters", count_text(network.parameter_count())),
    ]
    return Opened(to_desc(network), parameter_arrays(network), title, facts, network)


# -- files


def _file(path: str, network: str) -> Opened:
    """A net from a file of any kind that describes one, or from the folder of a Vosk model."""
    title = os.path.basename(path.rstrip("/"))
    kind = kind_of(path) if os.path.exists(path) else ""
    if network and kind not in _CNTK:
        raise FormatError(f"{path}: no config of CNTK's, so it has no network {network!r}")
    if path.endswith(SUFFIX):
        checkpoint = read_checkpoint(path)
        return _operators(checkpoint.op_list, checkpoint.values, title)
    net_path, tensor_path = paths_of(path)
    if kind in _CNTK:
        check_language(path, kind)
        found = _cntk_file(path, network)
    elif kind in _KALDI:
        found = _kaldi_file(acoustic_model_of(path) if kind == "vosk" else path, kind)
    elif kind == "onnx":
        found = _onnx_file(path)
    elif os.path.isfile(net_path) or not os.path.exists(path):
        return _saved(path, tensor_path, title)
    else:
        raise no_net(path, kind, "to look at")
    found.title = title
    found.facts.insert(0, ("file", title))
    return found


def _saved(path: str, tensor_path: str, title: str) -> Opened:
    """A net that opscope saved; a description alone is shown without its numbers."""
    has_arrays = os.path.exists(tensor_path)
    net, arrays = load_parts(path) if has_arrays else (load_desc(path), {})
    if net.metadata.get("dialect") == "nnet3" and has_arrays:
        from ...nnet3.network.nnet import Nnet

        opened = _nnet(Nnet.from_desc(net, arrays), title)
        opened.facts.insert(0, ("file", title))
        return opened
    opened = _operators(net, arrays, title)
    opened.facts.insert(0, ("file", title if has_arrays else f"{title}, without parameters"))
    return opened


def _onnx_file(path: str) -> Opened:
    """An ONNX model by its own nodes."""
    from ..onnx.importing.shown import shown_model

    model = shown_model(path)
    opened = _operators(model.net, model.arrays, path)
    opened.facts.insert(0, ("opset", str(model.opset)))
    opened.facts += sorted(model.metadata.items())
    return opened


def _kaldi_file(path: str, kind: str) -> Opened:
    """A model, config or xconfig of Kaldi's."""
    from ...nnet3.network.nnet import Nnet

    if kind in ("config", "xconfig"):
        from ...nnet3.programs.listing import read_network

        return _nnet(read_network(path, kind), path)
    return _nnet(Nnet.read(path), path)


def _cntk_file(path: str, wanted: str) -> Opened:
    """A model, config or network description of CNTK's; of several networks the one wanted."""
    from ...cntk.programs.files import networks_of

    networks = networks_of(path)
    names = ", ".join(networks) or "none"
    if wanted:
        if wanted not in networks:
            hint = nearest(wanted, networks)
            raise FormatError(f"{path}: has no network {wanted!r}{hint}; it has {names}")
        networks = {wanted: networks[wanted]}
    if len(networks) != 1:
        several = f" ({names}): say which" if networks else ", one is needed"
        raise FormatError(f"{path}: describes {len(networks)} networks{several}")
    return _network(next(iter(networks.values())), path)
