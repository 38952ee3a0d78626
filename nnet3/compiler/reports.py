"""Reports of requests that are compiled, in Kaldi's words; see `verbose.py` for the levels.

Source: Kaldi's `nnet3/nnet-optimize.cc`, `nnet-compile.cc`, `nnet-compile-looped.cc`,
`nnet-computation-graph.cc` and `nnet-graph.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph.graph import Graph
from ..graph.node_order import component_graph
from ..index.indexes import format_integers
from .compiler import Compiler
from .computation import Computation
from .memory_use import memory_use
from .verbose import Verbose


def report_compiled(to: Verbose, compiler: Compiler, computation: Computation) -> None:
    """Report a request that was compiled; the passes come after this."""
    if to.level >= 6:
        _report_order(to, compiler.graph)
    if to.level >= 5:
        flags = "".join("t" if needed else "f" for needed in compiler.deriv_needed)
        to.at(5, f"deriv_needed = {flags}\n")
    if to.level >= 4 and len(compiler.requests) == 1:
        to.log(f"Computation request is  {compiler.requests[0].to_kaldi()}")
        to.log(f"Generated computation is: {computation.to_kaldi()}")
    if to.level >= 3:
        use = memory_use(computation).peak
        to.log(f"Before optimization, max memory use (bytes) = {use}")


def _report_order(to: Verbose, graph: Graph) -> None:
    for number in range(len(graph.requests)):
        segments = [group.segments[number] for group in graph.groups]
        rounds = max(segment.explore(graph.topology).rounds for segment in segments)
        to.at(6, f"current_distance = {rounds}")
    nodes = graph.topology.readers_of
    components = component_graph(nodes)
    epochs = graph.topology.epochs
    to.at(6, f"graph is: {_graph_text(nodes)}")
    to.at(6, f"scc graph is: {_graph_text(components.graph)}")
    order = "".join(f"{epochs[members[0]]}, " for members in components.members)
    to.at(6, f"scc_node_to_epoch is: {order}")
    to.at(6, f"node_to_epoch: {format_integers(np.array(epochs))}")


def report_compressed(to: Verbose, before: Computation, after: Computation) -> None:
    """Report what the compression of memory saves."""
    if to.level >= 2:
        uses = memory_use(before).peak, memory_use(after).peak
        if uses[0] != uses[1]:
            words = f"from {uses[0]} to {uses[1]} bytes."
            to.at(2, f"Memory compression reduced  memory use {words}")


def report_optimized(
    to: Verbose, computation: Computation, chunks: int = 0, looped: bool = False
) -> None:
    """Report a computation after the passes.

    Args:
        chunks: of a computation that is to be looped, how many requests were compiled.
        looped: it goes back.
    """
    if to.level >= 3:
        use = memory_use(computation).peak
        to.log(f"After optimization, max memory use (bytes) = {use}")
    if looped:
        to.at(3, f"Computation is:\n{computation.to_kaldi()}")
    elif chunks:
        to.at(2, f"Looped compilation failed with {chunks} requests, trying {2 * chunks}")
    elif to.level >= 4:
        to.log(f"Optimized computation is: {computation.to_kaldi()}")


def _graph_text(graph: Sequence[Sequence[int]]) -> str:
    """Kaldi's PrintGraphToString: `0 -> (1,2); 1 -> ()`."""
    return "; ".join(
        f"{node} -> ({','.join(map(str, readers))})" for node, readers in enumerate(graph)
    )
