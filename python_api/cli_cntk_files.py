"""What `opscope show` and `opscope verify` tell of CNTK's models and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from ..cntk.models.checkpoint import read_checkpoint
from ..cntk.models.open_model import format_of, open_model
from ..cntk.network.dialect import DIALECT, from_desc, to_desc
from ..proto import net_pb2 as pb

_SNIFFED = 1 << 20


def kind_of_file(path: str) -> str:
    """ "model", "v2 model" or "checkpoint"; empty for anything else."""
    try:
        with open(path, "rb") as file:
            return format_of(file.read(_SNIFFED)) or ""
    except OSError:
        return ""


def model_desc(path: str) -> pb.NetDesc:
    """The network of a model, in the cntk dialect.

    Raises:
        FormatError: the file is damaged, or a checkpoint.
        ShapeError: the network does not fit together.
    """
    return to_desc(open_model(path).network)


def listing(path: str) -> Iterator[str]:
    """The lines that `opscope show` prints for a checkpoint."""
    state = read_checkpoint(path)
    yield f"checkpoint after {state.samples} samples"
    yield f"learning rate per sample {state.rate:.9g}, criterion {state.criterion:.9g}"
    if state.minibatch is not None:
        yield f"minibatch size {state.minibatch}"
    for number, gradient in enumerate(state.gradients):
        count = f", count {state.counts[number]:.9g}" if state.counts else ""
        yield f"smoothed gradient {number}: {gradient.shape[0]} x {gradient.shape[1]}{count}"


def check(path: str, kind: str) -> str:
    """A line that says what a file holds.

    Raises:
        FormatError: it is damaged.
        ShapeError: the network in it does not fit together.
    """
    if kind == "checkpoint":
        state = read_checkpoint(path)
        return f"{path}: CNTK checkpoint with {len(state.gradients)} gradients, no error"
    network, what = open_model(path)
    return f"{path}: {what}: {len(network)} nodes, {network.parameter_count()} parameters, no error"


def is_dialect(desc: pb.NetDesc) -> bool:
    """Whether a net is in the cntk dialect."""
    return desc.metadata.get("dialect") == DIALECT


def check_dialect(desc: pb.NetDesc) -> str:
    """What a net in the cntk dialect holds.

    Raises:
        FormatError: it is damaged.
        ShapeError: the network does not fit together.
    """
    network = from_desc(desc)
    network.validate()
    return f"{len(network)} nodes, {network.parameter_count()} parameters"
