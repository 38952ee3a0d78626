"""What compiling and computing tell with Kaldi's `--verbose` and `--computation.debug`.

    with telling(Verbose(level=4, log=print)):
        ...    # requests that are compiled here are told

Levels and words are those of Kaldi's nnet-optimize.cc, nnet-compile.cc and
nnet-computation-graph.cc:

    2  what compressed memory saves
    3  the greatest memory use before and after the passes
    4  the request, and the commands before and after the passes
    5  which steps have derivatives; every command that is run, see `run.trace`
    6  the graph of nodes and their epochs, the rounds of the search for rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from ..graph.graph import Graph
from ..graph.node_order import component_graph
from ..graph.request import ComputationRequest
from ..index.indexes import format_integers
from .compiler import Compiler
from .computation import Computation
from .memory_use import memory_use


@dataclass(frozen=True)
class Verbose:
    """Who is told, and how much.

    Attributes:
        level: that of Kaldi's `--verbose`.
        log: takes lines of the kind LOG, which Kaldi prints from some level on.
        vlog: takes lines of the kind VLOG with their level; None: `log` takes them.
        debug: whether every command that is run is told, whatever the level.
    """

    level: int
    log: Callable[[str], None]
    vlog: Callable[[int, str], None] | None = None
    debug: bool = False

    @property
    def tells_commands(self) -> bool:
        """Whether every command that is run is told."""
        return self.debug or self.level >= 5

    def at(self, level: int, message: str) -> None:
        """Tell a line of the kind VLOG."""
        if self.level < level:
            return
        if self.vlog is None:
            self.log(message)
        else:
            self.vlog(level, message)

    def compiled(self, compiler: Compiler, computation: Computation) -> None:
        """Tell of a request that was compiled; the passes come after this."""
        if self.level >= 6:
            self._order(compiler.graph)
        if self.level >= 5:
            flags = "".join("t" if needed else "f" for needed in compiler.deriv_needed)
            self.at(5, f"deriv_needed = {flags}\n")
        if self.level >= 4 and len(compiler.requests) == 1:
            self._commands(compiler.requests[0], computation)
        if self.level >= 3:
            use = memory_use(computation).peak
            self.log(f"Before optimization, max memory use (bytes) = {use}")

    def _order(self, graph: Graph) -> None:
        for number in range(len(graph.requests)):
            rounds = [
                group.segments[number].explore(graph.topology).rounds for group in graph.groups
            ]
            self.at(6, f"current_distance = {max(rounds, default=0)}")
        nodes = graph.topology.readers_of
        components = component_graph(nodes)
        epochs = graph.topology.epochs
        self.at(6, f"graph is: {_graph_text(nodes)}")
        self.at(6, f"scc graph is: {_graph_text(components.graph)}")
        order = "".join(f"{epochs[members[0]]}, " for members in components.members)
        self.at(6, f"scc_node_to_epoch is: {order}")
        self.at(6, f"node_to_epoch: {format_integers(np.array(epochs))}")

    def _commands(self, request: ComputationRequest, computation: Computation) -> None:
        self.log(f"Computation request is  {request.to_kaldi()}")
        self.log(f"Generated computation is: {computation.to_kaldi()}")

    def compressed(self, before: Computation, after: Computation) -> None:
        """Tell what the compression of memory saves."""
        if self.level >= 2:
            uses = memory_use(before).peak, memory_use(after).peak
            if uses[0] != uses[1]:
                words = f"from {uses[0]} to {uses[1]} bytes."
                self.at(2, f"Memory compression reduced  memory use {words}")

    def optimised(self, computation: Computation, chunks: int = 0, looped: bool = False) -> None:
        """Tell of a computation after the passes.

        Args:
            chunks: of a computation that is to be looped, how many requests were compiled.
            looped: it goes back.
        """
        if self.level >= 3:
            use = memory_use(computation).peak
            self.log(f"After optimization, max memory use (bytes) = {use}")
        if looped:
            self.at(3, f"Computation is:\n{computation.to_kaldi()}")
        elif chunks:
            words = f"{chunks} requests, trying {2 * chunks}"
            self.at(2, f"Looped compilation failed with {words}")
        elif self.level >= 4:
            self.log(f"Optimized computation is: {computation.to_kaldi()}")


def _graph_text(graph: Sequence[Sequence[int]]) -> str:
    """Kaldi's PrintGraphToString: `0 -> (1,2); 1 -> ()`."""
    return "; ".join(
        f"{node} -> ({','.join(map(str, readers))})" for node, readers in enumerate(graph)
    )


VERBOSE: ContextVar[Verbose | None] = ContextVar("verbose", default=None)
"""Who is told of what is compiled and run here; None: nobody."""


@contextmanager
def telling(listener: Verbose) -> Iterator[None]:
    """A context in which a listener is told of what is compiled and run."""
    token = VERBOSE.set(listener)
    try:
        yield
    finally:
        VERBOSE.reset(token)
