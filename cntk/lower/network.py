"""The nodes that some roots need, as one NetDesc."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..network.network import Network
from ..network.node import Node
from .emitter import Emitter, Lowered


def lower(
    network: Network,
    roots: Iterable[Node],
    dtype: np.dtype | None = None,
    *,
    carried: bool = False,
) -> Lowered:
    """The operators that compute `roots`, and how they are joined to minibatches.

    Args:
        network: validated.
        dtype: of all values; by default that of the network's precision.
        carried: whether sequences may go on from minibatch to minibatch: then states of delays are
            read from variables.

    Raises:
        UnknownOperatorError: nothing is known of a node's operation.
    """
    dtype = np.dtype(dtype or (np.float64 if network.precision == "double" else np.float32))
    emitter = Emitter(dtype, carried=carried, name=network.name)
    roots = list(roots)
    needed = _needed(roots)
    for node in network.order:
        if node in needed:
            emitter.lower(node)
    for root in roots:
        emitter.keep(root)
    return emitter.lowered


def _needed(roots: Iterable[Node]) -> set[Node]:
    """The nodes that have to be computed: statistics of the whole data are constants by now."""
    needed = set(roots)
    waiting = list(needed)
    while waiting:
        node = waiting.pop()
        if node.kind.precompute:
            continue
        new = set(node.inputs) - needed
        needed |= new
        waiting += new
    return needed
