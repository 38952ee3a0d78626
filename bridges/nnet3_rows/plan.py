"""Which rows of every node an export computes: what can be computed, and what is asked for.

A row that nnet3 could compute for a request counts as there; `IfDefined`, `Failover` and parts of
components that need not be there ask for it. The request is `nnet3-compute`'s for a whole
utterance as one chunk: outputs at 0, subsampling, ...; the input with its context on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from ...nnet3.components.base.dependence import Reads
from ...nnet3.components.statistics import (
    StatisticsExtractionComponent,
    StatisticsPoolingComponent,
)
from ...nnet3.graph.loops import IrregularError, Loop, is_source
from ...nnet3.graph.topology import Topology
from ...nnet3.language.descriptor import (
    BinarySumDescriptor,
    ConstantSumDescriptor,
    OptionalSumDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
)
from .grids import Grid, merged
from .loops import GeneralLoop, loop_in
from .reads import NotExportedError, Read, reads_of


@dataclass(frozen=True)
class Reach:
    """The times at which rows of a node can be computed.

    Attributes:
        low, high: the first and the last; `high` counts from the last frame.
        exact: whether there are no others.
        still: whether there is the one at time 0 alone, however long the input is.
    """

    low: float = -inf
    high: float = inf
    exact: bool = True
    still: bool = False

    def __and__(self, other: Reach) -> Reach:
        return Reach(
            max(self.low, other.low),
            min(self.high, other.high),
            self.exact and other.exact,
            self.still or other.still,
        )

    def read_at(self, offset: int) -> Reach:
        """The times that read this at an offset."""
        return Reach(self.low - offset, self.high - offset, self.exact, self.still)

    def covers(self, grid: Grid) -> bool:
        """Whether all rows of a grid are there, for every length."""
        return self.low <= grid.first and grid.last <= self.high


@dataclass(frozen=True)
class Border:
    """How rows that may be missing are read.

    Attributes:
        inner: the grid that is computed.
        left, right: rows of zeros around it, where not `masked`; a negative one drops rows.
        masked: more is computed than is there; zeros take the place of the rest.
        reach: what is there.
    """

    inner: Grid
    left: int
    right: int
    masked: bool
    reach: Reach

    @property
    def outer(self) -> Grid:
        """The grid with the rows around it."""
        inner = self.inner
        first = inner.first - self.left * inner.step
        last = inner.last + self.right * inner.step
        return replace(inner, first=first, last=last)


@dataclass
class Plan:
    """Grids of all nodes that the outputs need.

    Args:
        topology: of the network.
        unit: frames of the input for one row of output.
        left, right: context of the network.
        whole: the outputs are the rows at time 0, of an input without padding.

    Attributes:
        grids: by node; nodes without one are not needed.
        reach: by node.
        loops: by the number of any member.
        exact_end: whether rows at the end depend on where nnet3's request ends.
    """

    topology: Topology
    unit: int
    left: int
    right: int
    whole: bool = False
    grids: dict[int, Grid] = field(default_factory=dict[int, Grid])
    reach: dict[int, Reach] = field(default_factory=dict[int, Reach])
    loops: dict[int, Loop] = field(default_factory=dict[int, Loop])
    exact_end: bool = False
    _reads: dict[Any, list[Read]] = field(default_factory=dict[Any, list[Read]])

    def make(self, outputs: list[int]) -> None:
        """Fill in everything for some output nodes.

        Raises:
            NotExportedError: a loop is no recurrent layer, or rows depend on data.
        """
        try:
            for members, is_loop in self.topology.stages:
                if is_loop and not is_source(self.topology, members):
                    self.loops |= dict.fromkeys(members, loop_in(self.topology, members))
        except IrregularError as error:
            raise NotExportedError(
                f"a loop of the network is no recurrent layer: {error}"
            ) from None
        needed = needed_by(self.topology, outputs)
        for members, _ in self.topology.stages:
            for node in members:
                if node in needed:
                    with named(self.topology, node):
                        self.reach[node] = self._reach(node)
        for node in outputs:
            wanted = Grid(0, self.unit, 0, not self.whole)
            short = self.reach[node].low > 0 if self.whole else not self.reach[node].covers(wanted)
            if short:
                name = self.topology.nodes[node].name
                raise NotExportedError(f"output '{name}' cannot be computed with the context found")
            self._need(node, wanted)
        for members, _ in reversed(self.topology.stages):
            wanted = [node for node in members if node in self.grids]
            if wanted and members[0] in self.loops:
                self._demand_loop(self.loops[members[0]])
                continue
            for node in wanted:
                self.grids[node] = self.grids[node].settled(self.unit)
                with named(self.topology, node):
                    self._demand(node, self.grids[node])

    def reads(self, leaf: Any) -> list[Read]:
        """The reads of a leaf of a descriptor."""
        if leaf not in self._reads:
            self._reads[leaf] = reads_of(leaf, self.topology.index)
        return self._reads[leaf]

    def read_elsewhere(self, loop: Loop) -> list[int]:
        """The members of a loop that nodes outside of it read; of column ranges their own."""
        inside = set(loop.members)
        nodes = self.topology.nodes
        return [
            number
            for number in loop.members
            if nodes[number].kind != "descriptor"
            and any(
                reader not in inside and reader in self.grids
                for reader in self.topology.readers_of[number]
            )
        ]

    # What can be computed

    def _reach(self, number: int) -> Reach:
        node = self.topology.nodes[number]
        if self._is_source(number):
            return Reach()
        if number in self.loops:
            return self._reach_of_loop(self.loops[number], number)
        if node.kind == "input":
            if node.name == "ivector":
                return Reach(0, 0, still=True)
            return Reach(-self.left, self.right)
        if node.kind == "dim-range":
            return self.reach[node.source]
        if node.kind == "descriptor":
            reach = Reach()
            for part in node.expression().parts:
                reach &= self.reach_of(part)
            return reach
        return self._reach_of_component(node.component, node.reads, self.reach.get(number - 1))

    def reach_of(self, part: SumDescriptor) -> Reach:
        """The times at which a part of a descriptor can be computed."""
        if isinstance(part, OptionalSumDescriptor | ConstantSumDescriptor):
            return Reach()
        if isinstance(part, BinarySumDescriptor):
            first, second = self.reach_of(part.a), self.reach_of(part.b)
            if part.op == "Sum":
                return first & second
            low, high = min(first.low, second.low), max(first.high, second.high)
            touch = (first.low - 1 <= second.high) and (second.low - 1 <= first.high)
            exact = first.exact and second.exact and touch
            return Reach(low, high, exact, first.still or second.still)
        assert isinstance(part, SimpleSumDescriptor)
        reach = Reach()
        for read in self.reads(part.src):
            reach &= self._reach_of_read(read, str(part))
        return reach

    def _reach_of_read(self, read: Read, text: str) -> Reach:
        source = self.reach[read.node]
        if read.at is not None:
            last = inf if self.whole and not source.still else source.high
            if not source.low <= read.at <= last:
                raise NotExportedError(f"'{text}' reads time {read.at}, which is not always there")
            return Reach()
        if source.still:
            return source
        if read.offset is not None:
            return source.read_at(read.offset)
        moves = [offset for offset in read.offsets if offset is not None]
        low = source.low
        if low > -inf:
            times = range(int(low) - max(moves) - 1, int(low) - min(moves) + 1)
            low = 1 + max((t for t in times if self._before(read, t, source.low)), default=low)
        return Reach(low, source.high - max(moves), False)

    @staticmethod
    def _before(read: Read, t: int, low: float) -> bool:
        offset = read.offsets[t % len(read.offsets)]
        return offset is not None and t + offset < low

    def _reach_of_component(self, component: Any, reads: Reads, source: Reach | None) -> Reach:
        assert source is not None
        if isinstance(component, StatisticsExtractionComponent):
            period = component.output_period
            low = -((period - component.input_period - source.low) // period) * period
            return Reach(low, source.high, period == 1 and source.exact)  # starts of periods
        if isinstance(component, StatisticsPoolingComponent):
            low = source.low - component.right_context
            high = source.high + component.left_context
            return Reach(low, high, component.input_period == 1 and source.exact)
        if reads.offsets is None or reads.required is None:
            raise NotExportedError(f"{component.type} reads rows by a rule of its own")
        reach = Reach()
        for offset, required in zip(reads.offsets, reads.required, strict=True):
            if required:
                reach &= source.read_at(offset)
        return reach

    def _reach_of_loop(self, loop: Loop, number: int) -> Reach:
        reach = Reach()
        stand_ins = loop.fallbacks if isinstance(loop, GeneralLoop) else []
        for term in loop.reads:
            if not term.optional:
                source = self.reach[term.node]
                if source.still:
                    raise NotExportedError("a loop reads an iVector at its own times")
                reach &= source.read_at(term.offset)
        name = self.topology.nodes[loop.members[0]].name
        if reach.low == -inf or reach.high == inf:
            raise NotExportedError(f"the loop of '{name}' has no first row")
        if not reach.exact:
            raise NotExportedError(f"where the loop of '{name}' begins follows from the length")
        if not isinstance(loop, GeneralLoop):
            return reach
        if any(term.offset * loop.offset < 0 for term in stand_ins):
            raise NotExportedError(f"the loop of '{name}' falls over to rows after others")
        later = loop.lags[number] * loop.offset
        if loop.offset < 0:
            return replace(reach, low=reach.low - later)
        return replace(reach, high=reach.high - later)

    def _is_source(self, number: int) -> bool:
        """Whether a node is a component that reads nothing, or the descriptor before one."""
        node = self.topology.nodes[number]
        if node.kind == "descriptor" and not node.is_output:
            node = self.topology.nodes[number + 1]
        return node.kind == "component" and node.reads.offsets == ()

    # What is asked for

    def _need(self, node: int, grid: Grid) -> None:
        self.grids[node] = merged(self.grids.get(node), grid)

    def border(self, reach: Reach, grid: Grid) -> Border:
        """How the rows of a grid are read that need not be there."""
        if reach.covers(grid):
            return Border(grid, 0, 0, False, reach)
        if not reach.exact or reach.still:
            raise NotExportedError("whether optional rows are there follows from the length")
        inner = grid.clipped(reach.low, reach.high)
        if not inner.never_empty and inner.first <= reach.high:
            inner = replace(inner, last=inner.first)  # one row more than is read, for short inputs
        grid, inner = grid.settled(self.unit), inner.settled(self.unit)
        even = not (grid.moving and self.unit % grid.step)
        if grid.moving and inner.last < grid.last:
            self.exact_end = True
        if not inner.never_empty or not even:
            self.exact_end = True
            return Border(grid, 0, 0, True, reach)
        left = (inner.first - grid.first) // grid.step
        right = (grid.last - inner.last) // grid.step
        return Border(inner, left, right, False, reach)

    def _demand(self, number: int, grid: Grid) -> None:
        node = self.topology.nodes[number]
        if self._is_source(number):
            return
        if node.kind == "dim-range":
            self._need(node.source, grid)
        elif node.kind == "descriptor":
            for part in node.expression().parts:
                self._demand_part(part, grid)
        elif node.kind == "component":
            wanted = self.input_of(number, grid)
            if wanted is not None:
                self._need(number - 1, wanted.inner)

    def _demand_part(self, part: SumDescriptor, grid: Grid) -> None:
        if isinstance(part, OptionalSumDescriptor):
            self._demand_part(part.src, self.border(self.reach_of(part.src), grid).inner)
        elif isinstance(part, BinarySumDescriptor) and part.op == "Failover":
            first = self.reach_of(part.a)
            self._demand_part(part.a, self.border(first, grid).inner)
            if not first.covers(grid):
                self._demand_part(part.b, self.border(self.reach_of(part.b), grid).inner)
        elif isinstance(part, BinarySumDescriptor):
            self._demand_part(part.a, grid)
            self._demand_part(part.b, grid)
        elif isinstance(part, SimpleSumDescriptor):
            for read in self.reads(part.src):
                here = read.on(grid)
                if here is not None:
                    self._need(here.node, here.demand(grid))

    def input_of(self, number: int, grid: Grid) -> Border | None:
        """The rows of its input that a component reads for a grid; None: it reads nothing."""
        node = self.topology.nodes[number]
        component = node.component
        reads = node.reads
        source = self.reach[number - 1]
        if isinstance(component, StatisticsExtractionComponent):
            period = component.output_period
            first = grid.first // period * period
            wanted = Grid(first, component.input_period, grid.last + period - 1, grid.moving)
            return self._available(source, wanted)
        if isinstance(component, StatisticsPoolingComponent):
            left, right = component.left_context, component.right_context
            step = component.input_period
            first = -((left - grid.first) // step) * step
            wanted = Grid(first, step, grid.last + right, grid.moving or right > 0)
            return self._available(source, wanted)
        assert reads.offsets is not None and reads.required is not None
        grid_read: Grid | None = None
        for offset in reads.offsets:
            grid_read = merged(grid_read, grid.moved(offset))
        if grid_read is None:
            return None
        grid_read = grid_read.settled(self.unit)
        if all(reads.required):
            return Border(grid_read, 0, 0, False, source)
        return self.border(source, grid_read)

    def _available(self, source: Reach, wanted: Grid) -> Border:
        """The rows of a window that are there, however few."""
        if not wanted.moving and wanted.last > source.high:
            wanted = Grid(wanted.first, wanted.step, int(source.high))
        inner = wanted.clipped(source.low, source.high)
        self.exact_end = True
        return Border(inner, 0, 0, False, source)

    def _demand_loop(self, loop: Loop) -> None:
        grid: Grid | None = None
        for node in loop.members:
            if node in self.grids:
                grid = merged(grid, self.grids[node])
        assert grid is not None
        back = abs(loop.offset)
        reach = Reach(
            min(self.reach[node].low for node in loop.members),
            max(self.reach[node].high for node in loop.members),
        )
        step = merged(grid, grid.moved(back)).step if back % grid.step else grid.step
        grid = Grid(grid.first, step, grid.last, grid.moving)
        name = self.topology.nodes[loop.members[0]].name
        if not grid.moving:
            raise NotExportedError(f"the loop of '{name}' is read at fixed times alone")
        low = int(reach.low) if loop.offset < 0 else grid.first
        low += (grid.first - low) % step
        high = grid.last
        if loop.offset > 0:
            high = int(reach.high)
            self.exact_end = True
            if self.unit % step:
                raise NotExportedError(f"the loop of '{name}' runs backwards in steps of {step}")
        if low > grid.first:
            raise NotExportedError(f"rows before the first of the loop of '{name}' are read")
        grid = Grid(low, step, high).settled(self.unit)
        if not grid.never_empty:
            raise NotExportedError(f"the loop of '{name}' may have no row")
        self.grids |= dict.fromkeys(loop.members, grid)
        for term in loop.reads:
            wanted = grid.moved(term.offset)
            if term.optional:
                wanted = self.border(self.reach[term.node], wanted).inner
            self._need(term.node, wanted)


def needed_by(topology: Topology, outputs: Iterable[int]) -> set[int]:
    """The nodes that some outputs need, themselves included."""
    needed: set[int] = set()
    queue = list(outputs)
    while queue:
        number = queue.pop()
        if number not in needed:
            needed.add(number)
            queue += topology.inputs_of[number]
    return needed


@contextmanager
def named(topology: Topology, number: int) -> Iterator[None]:
    """A context in which refusals say which node they are about."""
    try:
        yield
    except NotExportedError as error:
        raise NotExportedError(f"'{topology.nodes[number].name}': {error}") from None
