"""From an example of sequences to the request of a computation, and to what else it holds.

Source: `GetChainComputationRequest` in Kaldi's `nnet3/nnet-chain-example.cc`.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import FormatError, ShapeError, check_kind, nearest
from ...kaldi.files.sparse import to_dense
from ..chain.examples import NnetChainExample
from ..chain.supervisions.supervision import Supervision
from ..graph.request import ComputationRequest, IoSpecification
from ..network.nnet import Nnet
from .example_request import check_width, node_dims

XENT = "-xent"
"""The suffix that an output's cross-entropy output has."""
POSTERIORS = "__LWF-posteriors"
"""The input of chain examples with the posteriors of another network, sequence by sequence."""


def chain_request(
    nnet: Nnet,
    example: NnetChainExample,
    *,
    xent: bool = False,
    derivatives: bool = False,
    store_component_stats: bool = False,
) -> ComputationRequest:
    """The request that computes the outputs of a chain example.

    Args:
        xent: whether the cross-entropy outputs are also wanted.
        derivatives: whether derivatives of the parameters are wanted.

    Raises:
        FormatError: the network has no node of that name.
        ShapeError: a matrix is not as wide as its node; both widths are named.
    """
    check_kind(example, NnetChainExample, "the example")
    request = ComputationRequest(
        need_model_derivative=derivatives, store_component_stats=store_component_stats
    )
    dims = node_dims(nnet)
    inputs = {node.name for node in nnet.inputs()}
    for io in example.inputs:
        if io.name.startswith("__"):  # data that belong to no node
            continue
        if io.name not in inputs:
            raise FormatError(
                f"the example has the input {io.name!r}, which the network lacks"
                f"{nearest(io.name, inputs)}"
            )
        check_width(io, dims[io.name])
        request.inputs.append(IoSpecification(io.name, io.indexes, False))
    for output in example.outputs:
        for name in (output.name, output.name + XENT)[: 2 if xent else 1]:
            if name not in dims or name in inputs:
                raise FormatError(
                    f"the example wants the output {name!r}, which the network lacks"
                    f"{nearest(name, dims)}"
                )
            if output.supervision.label_dim not in (None, dims[name]):
                raise ShapeError(
                    f"the example's supervision of {name!r} has {output.supervision.label_dim} "
                    f"pdfs, the node of the network {dims[name]}"
                )
            request.outputs.append(IoSpecification(name, output.indexes, derivatives))
    return request


def posteriors_of(example: NnetChainExample, supervision: Supervision) -> np.ndarray:
    """The posteriors that an example holds for learning without forgetting, in the order of the
    output's rows; 0 where it holds none.

    Raises:
        ShapeError: they do not fit the supervision, or there are several outputs.
    """
    rows, pdfs = supervision.rows, supervision.label_dim
    held = [io for io in example.inputs if io.name == POSTERIORS]
    if not held:
        return np.zeros((rows, pdfs), np.float32)
    if len(example.outputs) > 1:
        raise ShapeError("learning without forgetting wants examples with one output")
    posteriors = to_dense(held[0].features)
    if posteriors.shape != (rows, pdfs):
        raise ShapeError(
            f"{POSTERIORS} of shape {list(posteriors.shape)} for an output of {[rows, pdfs]}"
        )
    frames, sequences = supervision.frames_per_sequence, supervision.num_sequences
    return posteriors.reshape(sequences, frames, pdfs).swapaxes(0, 1).reshape(rows, pdfs)
