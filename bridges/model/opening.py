"""Opening: the model in a file of any kind, or of an object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from ...framework.base.errors import FormatError, VariableError
from ...framework.base.scope import Scope
from ...framework.files.checkpoint import SUFFIX, read_checkpoint
from ...framework.files.saved import (
    HasOpList,
    load_arrays,
    load_marked,
    op_list_of,
    paths_of,
    persistent_values,
)
from ...framework.ir.op_list import OpList
from ...nnet3.programs.base.file_kinds import TABLE
from ..recognize.kinds import SCRIPTS, kind_named
from ..recognize.recognizing import check_language, kind_of, no_net
from .model import Asked, Model
from .net_models import Description, NetModel, held_values

_OF_CNTK = ("model", *SCRIPTS)


def open_model(
    given: Any,
    scope: Scope | None = None,
    *,
    network: str = "",
    whole: bool = False,
    use: str = "that is read here",
) -> Model:
    """The model in a file, or of an object.

    Args:
        given: the path of a file or folder of any kind that holds a network; or a builder, a net,
            what `opscope.load` gave, a description, a network of Kaldi's or of CNTK's.
        scope: holds the values of a net that is given without them.
        network: the command of a config of CNTK's whose network is meant, where it has several.
        whole: the values of a net must be there; an object's values are copied. Otherwise a
            description alone is enough.
        use: what the network is wanted for, for errors.

    Raises:
        FormatError: the file is missing, damaged, or holds no single network, or none of that name.
        VariableError: the object is no network.
    """
    if isinstance(given, (str, os.PathLike)):
        return _of_file(os.fspath(given), network, whole, use)
    if network:
        raise VariableError(f"network={network!r} is for files: {type(given).__name__} is one net")
    return _of_object(given, scope, whole)


def model_kind(path: str) -> str:
    """The kind of a file from which a model is opened, a name of the registry; "" for none.

    A saved net may be named without its suffix, or by its arrays; what is not there counts as one.
    """
    if path.endswith(SUFFIX):
        return "checkpoint"
    if not (TABLE.match(path) or os.path.exists(path)):
        return "net"
    kind = kind_of(path)
    if kind and kind != "net" and kind_named(kind).opens:
        return kind
    return "net" if os.path.isfile(paths_of(path)[0]) else kind


def _of_file(path: str, network: str, whole: bool, use: str) -> Model:
    kind = model_kind(path)
    if network and kind not in _OF_CNTK:
        raise FormatError(f"{path}: no config of CNTK's, so it has no network {network!r}")
    check_language(path, kind)
    is_lost = kind == "net" and os.path.exists(path) and not os.path.isfile(paths_of(path)[0])
    if is_lost or not kind or not kind_named(kind).opens:
        raise no_net(path, kind, use)
    return cast("Model", kind_named(kind).function("opens")(path, Asked(kind, network, whole)))


def open_saved(path: str, asked: Asked) -> Model:
    """A net that opscope saved, or the network of Kaldi's or CNTK's that is saved as one.

    Raises:
        FormatError: it is damaged; its arrays are missing, and the whole net is asked for.
    """
    title = os.path.basename(path)
    net, mark = load_marked(path)
    dialect = net.metadata.get("dialect", "")
    if not asked.whole and not os.path.exists(paths_of(path)[1]):
        model = (Description if dialect else NetModel)(net, {}, path, title)
        model.is_bare = True
        return model
    if dialect:
        return _in_dialect(net, load_arrays(path, net, mark), path, title)
    if asked.whole:
        return NetModel(net, load_arrays(path, net, mark), path, title)
    return NetModel(net, lambda: load_arrays(path, net, mark), path, title)


def open_checkpoint(path: str, asked: Asked) -> NetModel:
    """The net of a checkpoint, with the values that it has reached.

    Raises:
        FormatError: it is damaged.
    """
    del asked
    checkpoint = read_checkpoint(path)
    return NetModel(checkpoint.op_list, checkpoint.values, path, os.path.basename(path))


def _in_dialect(net: OpList, arrays: Mapping[str, np.ndarray], path: str, title: str) -> Model:
    """The network that a net in a dialect describes."""
    dialect = net.metadata["dialect"]
    if dialect == "nnet3":
        from .nnet3_models import of_saved as nnet3_of

        return nnet3_of(net, arrays, path, title)
    if dialect == "cntk":
        from .cntk_models import of_saved as cntk_of

        return cntk_of(net, arrays, path, title)
    return Description(net, arrays, path, title)


# -- objects


def _of_object(given: Any, scope: Scope | None, whole: bool) -> Model:
    from ...cntk.network.network import Network
    from ...nnet3.network.model import AmNnetSimple
    from ...nnet3.network.nnet import Nnet
    from .cntk_models import CntkModel
    from .nnet3_models import AcousticModel, Nnet3Model

    if isinstance(given, Model):
        return given
    if isinstance(given, AmNnetSimple):
        return AcousticModel(given)
    within = getattr(given, "nnet", None) or getattr(given, "network", None)
    for candidate in (given, within):
        if isinstance(candidate, Nnet):
            return Nnet3Model(candidate)
        if isinstance(candidate, Network):
            return CntkModel(candidate)
    if isinstance(given, tuple) and len(given) == 2:  # what `load` gives: a net and its scope
        given, scope = given
    net = op_list_of(cast("HasOpList", given))
    if whole:
        if scope is None:
            raise VariableError("the numbers of a net are in a scope: opscope.edit(net, scope)")
        held = {name: np.array(array) for name, array in persistent_values(net, scope).items()}
        dialect = net.metadata.get("dialect")
        return _in_dialect(net, held, "", net.name or "net") if dialect else NetModel(net, held)
    held = held_values(net, scope) if scope is not None else {}
    return (Description if net.metadata.get("dialect") else NetModel)(net, held)
