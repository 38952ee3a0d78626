"""What is wrong with the numbers of a network, and what is allowed in it but unusual."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ..language.nodes import COMPONENT, DIM_RANGE
from .nnet import Nnet

ERROR: Final = "error"
WARNING: Final = "warning"


@dataclass(frozen=True)
class Problem:
    """Something wrong (`ERROR`) or unusual (`WARNING`), as one line of text."""

    severity: str
    message: str


def not_finite(nnet: Nnet) -> list[str]:
    """A sentence for each array of the network that holds NaN or infinities."""
    lines = []
    for name, values in nnet.arrays().items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            wrong = values.size - np.count_nonzero(np.isfinite(values))
            component, _, field = name.partition("/")
            lines.append(
                f"component {component!r}: {wrong} of {values.size} numbers of {field} are nan or"
                " infinite"
            )
    return lines


def refuse_diverged(nnet: Nnet, source: str = "the network") -> None:
    """Refuse a network whose training diverged.

    Raises:
        FormatError: parameters or statistics are NaN or infinite; the first are named.
    """
    lines = not_finite(nnet)
    if lines:
        more = f" (and {len(lines) - 1} more arrays)" if len(lines) > 1 else ""
        raise FormatError(f"{source}: {lines[0]}{more}; training has diverged")


def unusual_parts(nnet: Nnet) -> list[str]:
    """A sentence for each thing that Kaldi takes and that is seldom meant."""
    lines = []
    inputs = [node.name for node in nnet.inputs()]
    outputs = [node.name for node in nnet.outputs()]
    for kind, names in (("input", inputs), ("output", outputs)):
        if kind not in names:
            lines.append(
                f"No {kind} node is called {kind!r} (there is {', '.join(names)}): programs that"
                " compute or decode want one."
            )
    others = [name for name in inputs if name not in ("input", "ivector")]
    if others and not nnet.is_simple():
        lines.append(
            f"Input nodes besides 'input' and 'ivector': {', '.join(others)}; decoding gives them"
            " nothing."
        )
    used = Counter(node.component for node in nnet.nodes if node.kind == COMPONENT)
    for name, count in used.items():
        if count > 1 and nnet.components[name].num_parameters:
            lines.append(f"Component {name} is used by {count} nodes, which share its parameters.")
    for name, component in nnet.components.items():
        rate = getattr(component, "learning_rate", None)
        if component.is_updatable and rate is not None and rate <= 0:
            lines.append(f"Component {name} has the learning rate {rate:g}: it is not trained.")
    dims = nnet.node_dims()
    for node in nnet.nodes:
        if node.kind == DIM_RANGE and node.dim == dims[node.source]:
            lines.append(f"Node {node.name} takes all columns of {node.source}.")
    if nnet.is_simple():
        try:
            nnet.context()
        except OpscopeError as error:
            lines.append(f"The context cannot be found: {str(error).splitlines()[0]}")
    return lines
