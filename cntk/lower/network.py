"""The nodes that some roots need, as one op list."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..network.network import Network
from ..network.nodes.node import Node
from .emitter import Emitter, Lowered
from .loops import lower_loop
from .table import lower_node


def lower(
    network: Network,
    roots: Iterable[Node],
    dtype: np.dtype | None = None,
    *,
    carried: bool = False,
    inference: bool = False,
) -> Lowered:
    """The operators that compute `roots`, and how they are joined to minibatches.

    Args:
        network: validated.
        dtype: of all values; by default the network's precision.
        carried: whether sequences may continue from minibatch to minibatch: then states of delays
            are read from variables.
        inference: whether the operators are for another runtime: those that CNTK's trainer needs of
            its own give way to shared ones, and sparse inputs are dense.

    Raises:
        UnknownOperatorError: nothing is known of a node's operation.
    """
    dtype = np.dtype(dtype or (np.float64 if network.precision == "double" else np.float32))
    emitter = Emitter(dtype, carried=carried, inference=inference, name=network.name)
    roots = list(roots)
    needed = _needed(roots)
    wanted = set(roots)  # that anything outside of their loop reads
    loop_of = {node: loop for loop in network.loops for node in loop.nodes}
    for node in needed:
        loop = loop_of.get(node)
        if carried and node.delay > 0:
            wanted.add(node.inputs[0])
        if not node.kind.precompute:
            wanted.update(c for c in node.inputs if loop is None or loop_of.get(c) is not loop)
    done: set[int] = set()
    for node in network.order:
        loop = loop_of.get(node)
        if node not in needed or id(loop) in done:
            continue
        if loop is None:
            lower_node(emitter, node)
        else:
            done.add(id(loop))
            lower_loop(emitter, loop, wanted)
    if carried:
        roots += [delayed.node.inputs[0] for delayed in emitter.lowered.delays]
    for root in roots:
        emitter.mark_live_out(root)
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
