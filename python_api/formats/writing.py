"""What several conversions share: facts that are reported, models of CNTK as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...cntk.models.v1 import format_model
from ...cntk.network.network import Network
from ...nnet3.network.nnet import Nnet
from .report import Job

Frames = tuple[int, int]


def checked_cntk(job: Job, network: Network) -> bytes:
    """The bytes of a model.

    Raises:
        VariableError: a parameter has no value.
    """
    if not network.groups["output"]:
        job.report.facts.append("no output node is named")
    return format_model(network)


def cntk_facts(network: Network, frames: Mapping[str, Frames]) -> Iterator[str]:
    """What to know of a network of CNTK: inputs with their windows, outputs, size."""
    for node in network.groups["feature"]:
        left, right = frames.get(node.name, (0, 0))
        window = f": contextWindow = {left}:{right}" if left or right else ""
        dim = node.shape[0] // (left + 1 + right)
        yield f"{node.name} [{node.shape[0]}]{window}{f' of {dim}' if window else ''}"
    names = ", ".join(f"{node.name} {list(node.shape)}" for node in network.groups["output"])
    yield f"outputs: {names or 'none'}"
    yield f"{len(network)} nodes, {network.parameter_count()} parameters"


def nnet3_facts(nnet: Nnet) -> Iterator[str]:
    """What to know of a network of Kaldi's: inputs, outputs, context, size."""
    for node in nnet.inputs():
        yield f"{node.name} [{node.dim}]"
    dims = nnet.node_dims()
    yield f"outputs: {', '.join(f'{node.name} [{dims[node.name]}]' for node in nnet.outputs())}"
    if nnet.is_simple():
        yield "context: {} before, {} after".format(*nnet.context())
    yield f"{len(nnet.components)} components, {nnet.num_parameters} parameters"
