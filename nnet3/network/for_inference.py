"""Networks as Kaldi's programs that compute take them: read, in test mode, components joined.

    nnet = for_inference("final.mdl")

The network that is given stays as it is: the result shares its arrays, and has copies of what
differs. Source: Kaldi's `nnet3bin/nnet3-compute.cc`.
"""

from __future__ import annotations

import copy
import os
from typing import TypeAlias

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, ShapeError, check_kind
from ...framework.base.files.atomic import PathLike
from ...kaldi.files.kaldi_io import Reader
from ..components.batch_norm import BatchNormComponent
from ..components.dropout import RandomComponent
from ..graph.request import ComputationRequest
from .adjust import without_statistics
from .collapse import collapse_model
from .editing.orphans import orphan_nodes
from .model import AmNnetSimple
from .nnet import Nnet

Model: TypeAlias = Nnet | AmNnetSimple | PathLike
"""A network, an acoustic model, or the path of a file that holds one of them."""


def read_model(source: PathLike | Reader) -> Nnet | AmNnetSimple:
    """The acoustic model or raw network in a file, binary or text, whichever it is.

    Raises:
        FormatError: the file cannot be read, holds neither, or is damaged.
    """
    reader = source if isinstance(source, Reader) else Reader(source)
    if reader.peek_token() == "<TransitionModel>":
        return AmNnetSimple.read_from(reader)
    return Nnet.read_from(reader)


def opened(model: Model) -> Nnet | AmNnetSimple:
    """The model itself, or the one in the file of this path.

    Raises:
        FormatError: as `read_model`.
        OpscopeError: it is something else.
    """
    if isinstance(model, Nnet | AmNnetSimple):
        return model
    if isinstance(model, str | os.PathLike):
        return read_model(model)
    raise OpscopeError(
        "a model is wanted: an Nnet, an AmNnetSimple, or the path of a file that holds one; you"
        f" gave {type(model).__name__}"
    )


def nnet_of(model: Model) -> Nnet:
    """The network of a model, as it is.

    Raises:
        OpscopeError: as `opened`.
    """
    content = opened(model)
    return content if isinstance(content, Nnet) else content.nnet


def for_inference(model: Model, test_mode: bool = True, collapse: bool = True) -> Nnet:
    """The network of a model as `nnet3-compute` computes it; the model is not changed.

    Args:
        model: a network, an acoustic model, or the path of a file that holds one of them.
        test_mode: batch normalization takes its statistics, and nothing is random. False: each
            component computes in its own mode, which after training is the training mode.
        collapse: components are joined where that saves work, see `collapse_model`.

    Returns:
        A network that shares the arrays of the model; the network itself where nothing differs.

    Raises:
        FormatError: the file cannot be read; or batch normalization has no statistics, because
            the network was not trained, and has no test mode.
        OpscopeError: it is no model.
    """
    check_kind(test_mode, bool, "test_mode")
    check_kind(collapse, bool, "collapse")
    nnet = nnet_of(model)
    if test_mode:
        nnet = _in_test_mode(nnet)
    if not collapse:
        return nnet
    joined = _view(nnet)
    changed = collapse_model(joined)
    return joined if any(changed) else nnet


def _in_test_mode(nnet: Nnet) -> Nnet:
    """The network with test mode set in batch-norm and dropout components, which are copies.

    Raises:
        FormatError: batch normalization that an output needs has no statistics.
    """
    unneeded = set(orphan_nodes(nnet))
    needed = {node.component for node in nnet.nodes if node.name not in unneeded}
    untrained = [name for name in without_statistics(nnet) if name in needed]
    if untrained:
        raise FormatError(
            f"no statistics for batch normalization in {', '.join(untrained)}; the network was not"
            " trained, and computes in training mode only (test_mode=False)"
        )
    changed = {
        name: copy.copy(component)
        for name, component in nnet.components.items()
        if isinstance(component, BatchNormComponent | RandomComponent) and not component.test_mode
    }
    if not changed:
        return nnet
    view = _view(nnet)
    view.components.update(changed)
    for component in changed.values():
        component.test_mode = True
    return view


def for_request(model: Model, request: ComputationRequest, test_mode: bool | None = None) -> Nnet:
    """The network in the mode that a request is computed in; components are not joined.

    Args:
        test_mode: as `for_inference` takes it; None: test mode where the request wants neither
            derivatives nor statistics, which are wanted in training.

    Raises:
        FormatError, OpscopeError: as `for_inference`.
    """
    check_kind(request, ComputationRequest, "the request")
    check_kind(test_mode, bool | None, "test_mode")
    if test_mode is None:
        test_mode = wants_test_mode(request)
    return for_inference(model, test_mode, collapse=False)


def wants_test_mode(request: ComputationRequest) -> bool:
    """Whether a request wants neither derivatives nor statistics, which are wanted in training."""
    return not (
        request.need_model_derivative
        or request.store_component_stats
        or any(io.has_deriv for io in (*request.inputs, *request.outputs))
    )


def chosen_priors(
    priors: np.ndarray | bool | None, model: Nnet | AmNnetSimple
) -> np.ndarray | None:
    """The priors that are given, or (True) those that the model holds; None where there are none.

    Raises:
        ShapeError: the model's are wanted, and it is a raw network.
    """
    if not isinstance(priors, bool):
        return priors
    if not priors:
        return None
    if isinstance(model, Nnet):
        raise ShapeError("the priors of the model are wanted, and this is a raw network (no .mdl)")
    return model.priors if model.priors.size else None


def _view(nnet: Nnet) -> Nnet:
    """Another network of the same components, whose nodes and dicts may be changed."""
    view = Nnet()
    view.nodes = [copy.copy(node) for node in nnet.nodes]
    view.components = dict(nnet.components)
    return view


def with_output(nnet: Nnet, name: str) -> Nnet:
    """The network with one of its outputs alone, called `output`; components are shared."""
    view = Nnet()
    outputs = {node.name for node in nnet.outputs()}
    view.components = dict(nnet.components)
    view.nodes = [
        copy.copy(node) for node in nnet.nodes if node.name == name or node.name not in outputs
    ]
    view.node(name).name = "output"
    return view
