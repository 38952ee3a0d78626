"""From an example to the request of a computation, with the checks that a user needs.

Source: `GetComputationRequest` in Kaldi's `nnet3/nnet-example-utils.cc`.
"""

from __future__ import annotations

from ...framework.base.errors import FormatError, ShapeError, check_kind, nearest
from ..files.examples import NnetExample, NnetIo
from ..graph.request import ComputationRequest, IoSpecification
from ..network.nnet import Nnet


def example_request(
    nnet: Nnet,
    example: NnetExample,
    need_model_derivative: bool = False,
    store_component_stats: bool = False,
) -> ComputationRequest:
    """The request that computes the outputs of an example from its inputs.

    Raises:
        FormatError: the network has no node of that name, or there is no input or no output.
        ShapeError: an input or output is not as wide as its node; both widths are named.
    """
    check_kind(example, NnetExample, "the example")
    request = ComputationRequest(
        need_model_derivative=need_model_derivative, store_component_stats=store_component_stats
    )
    outputs = {node.name for node in nnet.outputs()}
    dims = node_dims(nnet)
    for io in example.io:
        if io.name not in dims:
            raise FormatError(
                f"the example has {io.name!r}, but the network has no such input or output"
                f"{nearest(io.name, dims)}; it has {', '.join(dims)}"
            )
        check_width(io, dims[io.name])
        wanted = io.name in outputs
        listed = request.outputs if wanted else request.inputs
        listed.append(IoSpecification(io.name, io.indexes, wanted and need_model_derivative))
    for kind, there in (("input", request.inputs), ("output", request.outputs)):
        if not there:
            raise FormatError(f"the example has no {kind}")
    return request


def node_dims(nnet: Nnet) -> dict[str, int]:
    """Columns of each input and output node."""
    dims = nnet.node_dims()
    return {node.name: dims[node.name] for node in (*nnet.inputs(), *nnet.outputs())}


def check_width(io: NnetIo, dim: int) -> None:
    """Refuse a matrix that is not as wide as its node."""
    columns = io.features.shape[1]
    if columns != dim:
        raise ShapeError(
            f"the example's {io.name!r} has {columns} columns, the node of the network {dim}"
        )


def count_examples(io: list[NnetIo]) -> int:
    """How many examples (values of n) there are in a minibatch, as Kaldi counts them.

    Raises:
        ShapeError: inputs and outputs differ in this.
    """
    counts = {one.name: int(one.indexes[:, 0].max()) + 1 for one in io if len(one.indexes)}
    if len(set(counts.values())) > 1:
        held = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise ShapeError(f"inputs and outputs have different numbers of examples ({held})")
    return next(iter(counts.values()), 0)
