"""Runs recursive nets: all nodes of one height as rows of a few batches (bank.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.backend import to_host
from ...base.bounded_cache import BoundedCache
from ...base.context import OpContext
from ...base.errors import OpscopeError, TreeError
from ...base.shape import ArraySpec, Levels
from ...fusion.row_copies import take_rows
from ...ir.kernel_args import KernelArgs
from ...runtime.executor import as_view, frame_of
from ...runtime.plain_net import PlainNet, current_options
from ..inner_gradient import saving_of
from .bank import (
    Bank,
    BatchRange,
    BoundBatch,
    ForwardRun,
    StaticInput,
    gradient_reads,
)
from .description import TreeMemory, TreeNet, TreeSpecs, tree_net
from .forest import ForestSchedule, batches, make_forest_schedule

_SCHEDULES: BoundedCache[tuple, ForestSchedule] = BoundedCache(16)


class TreeProgram:
    """What forward and gradient runs share: the tree net, its links and its shapes."""

    def __init__(self, k: KernelArgs) -> None:
        self.k = k
        self.tree: TreeNet = tree_net(k.attrs["net"])
        self.memories: list[TreeMemory] = self.tree.memories
        self.frame = frame_of(k)
        self.xp = k.xp
        shared = (k.op.type, "scratch", str(self.frame.place))
        self._blocks: list[Any] = self.frame.scope.bound.setdefault(shared, [])
        self._used = 0
        names = k.op.inputs
        self.nodes: int = k.shape("parent")[0]
        self.offsets: Levels = self.frame.offsets(names["parent"][0])
        self.trees = len(self.offsets[0]) - 1 if self.offsets else 0
        specs = [
            [self.frame.plan.specs[name] for name in names.get(slot, ())]
            for slot in ("x", "static", "boot")
        ]
        self.specs: TreeSpecs = self.tree.infer(*specs)
        self.links: dict[str, ArraySpec] = {
            name: ((-1, *shape[1:]), dtype)
            for name, (shape, dtype) in zip(self.tree.inputs, specs[0], strict=True)
        }

    def scratch(self, rows: int, spec: ArraySpec) -> Any:
        """Memory for `rows` rows like those of `spec`.

        Its contents last for one call. All operators of this type in the scope share it, from frame
        to frame: trees are new in every minibatch, and fresh memory costs more than what fills it.
        """
        shape, dtype = (rows, *spec[0][1:]), spec[1]
        size = math.prod(shape) * dtype.itemsize
        if self._used == len(self._blocks):
            self._blocks.append(self.xp.empty(0, np.uint8))
        if self._blocks[self._used].nbytes < size:
            self._blocks[self._used] = self.xp.empty(size + size // 4, np.uint8)
        block = self._blocks[self._used]
        self._used += 1
        return as_view(block, (shape, dtype))

    def context(self, live_out: frozenset[str]) -> OpContext:
        """The context that step nets are bound in; `live_out`: variables read after their runs."""
        return OpContext(self.frame.place, train=self.k.train, live_out=live_out)

    def initial_rows(self, number: int) -> int:
        """Rows that the initial state of memory `number` takes."""
        return 1 if self.specs.shared_boot[number] else self.trees


@dataclass(frozen=True, eq=False)
class ForwardIndex:
    """A schedule's index arrays, on the device.

    Attributes:
        rows: [nodes], row outside, by place.
        children: for each memory of a net with an arity, [nodes]: row of the buffer of states with
            the child's state, or with its initial state.
        edge_child: [edges], place of the child. edge_rows: [edges], row outside of the parent.
    """

    schedule: ForestSchedule
    rows: Any
    children: list[Any]
    edge_child: Any
    edge_rows: Any


class TreeForwardProgram(TreeProgram):
    """A `recursive` operator bound to the arrays of one frame; calling it runs all nodes."""

    def __init__(self, k: KernelArgs) -> None:
        super().__init__(k)
        tree, nodes = self.tree, self.nodes
        self.x = dict(zip(tree.inputs, k.list("x"), strict=True))
        self.initial_states = k.list("boot")
        self.saved, self.key = self._saved_names()
        self.bank = self._bank()
        self.buffers: dict[str, Any] = {}
        self.initial_at: list[int] = []  # first row of each memory's initial state in its buffer
        extra = dict.fromkeys(tree.states, 0)
        for number, memory in enumerate(self.memories):
            if tree.arity:
                self.initial_at.append(nodes + extra[memory.state])
                extra[memory.state] += self.initial_rows(number)
        for name, rows in extra.items():
            self.buffers[name] = self.scratch(nodes + rows, self.specs.node[name])
        self.sums: list[Any] = []
        self.summands: list[Any] = []
        for row, dtype in self.specs.rows:
            if not tree.arity:
                self.sums.append(self.scratch(nodes, ((-1, *row), dtype)))
                self.summands.append(self.scratch(nodes, ((-1, *row), dtype)))
        self._index: ForwardIndex | None = None

    # -- binding -------------------------------------------------------------------------------

    def _saved_names(self) -> tuple[frozenset[str] | None, tuple]:
        """Names to save for a gradient (None: there is none), and the key of the bank."""
        outputs = self.k.op.outputs
        saving = saving_of(self.k.op, self.frame.plan)
        if not saving.wanted:
            return None, ("recursive", *outputs.get("out", ()), *outputs.get("final", ()))
        names: set[str] = set()
        if saving.everything:
            for net in (self.tree.node, self.tree.pair):
                operators = net.operators if net is not None else ()
                names.update(name for op in operators for name in op.output_vars())
        else:
            for op in saving.readers:
                tree = tree_net(op.attrs["net"])
                for net in (tree.node_grad, tree.pair_grad):
                    names.update(gradient_reads(net) if net is not None else ())
        return frozenset(names), ("recursive", saving.steps)

    def _bank(self) -> Bank:
        """The bank in the run's scope, a new one where its batches do not fit this frame."""
        frame, names = self.frame, self.k.op.inputs.get("static", ())
        self.statics: dict[str, tuple[Any, Levels]] = {}
        self.copied: list[tuple[str, Any]] = []
        statics: list[StaticInput] = []
        for inner, outer, array in zip(
            self.tree.statics, names, self.k.list("static"), strict=True
        ):
            offsets = frame.offsets(outer)
            is_fixed = outer in frame.plan.externals
            fixed = array if is_fixed else None
            statics.append(StaticInput(fixed, array.shape, array.dtype, offsets))
            self.statics[inner] = (array, offsets)
            if not is_fixed:
                self.copied.append((inner, array))
        own = (self.tree, self.saved, self.k.train, frame.place, current_options())
        signature = (*own, tuple(self.links.items()), tuple(self.specs.rows))
        bank: Bank | None = frame.scope.bound.get(self.key)
        if bank is None or not bank.serves(signature, statics):
            bank = Bank(signature, statics)
            for inner, array in self.copied:
                bank.copies[inner] = self.xp.empty_like(array)
            frame.scope.bound[self.key] = bank
        for inner, _ in self.copied:
            self.statics[inner] = (bank.copies[inner], self.statics[inner][1])
        return bank

    def _node_batch(self, rows: int) -> BoundBatch:
        """The node net, bound for a number of nodes."""

        def make() -> BoundBatch:
            specs = self.specs.node
            given = self.links | {m.previous: specs[m.previous] for m in self.memories}
            return self._make_batch(self.tree.node, rows, given, self.tree.states)

        return self._take_batch((False, rows), make)

    def _pair_batch(self, net: PlainNet, rows: int) -> BoundBatch:
        """The child net, bound for a number of edges."""

        def make() -> BoundBatch:
            links = self.tree.child_links
            given = self.links | {inner: self.specs.node[state] for state, inner in links}
            states = [memory.state for memory in self.memories if memory.by_pair]
            return self._make_batch(net, rows, given, states)

        return self._take_batch((True, rows), make)

    def _make_batch(
        self, net: PlainNet, rows: int, given: dict[str, ArraySpec], states: list[str]
    ) -> BoundBatch:
        context = self.context(frozenset({*states, *(self.saved or ())}))
        return BoundBatch(net, rows, given, self.statics, self.frame.scope, context)

    def _take_batch(self, key: tuple[bool, int], make: Any) -> BoundBatch:
        if self.saved is None:  # nothing is needed afterwards: the next batch may take its place
            self.bank.taken.clear()
        return self.bank.take(key, make)

    # -- running -------------------------------------------------------------------------------

    def __call__(self) -> None:
        k, bank = self.k, self.bank
        if self.frame.scope.bound.get(self.key) is not bank:  # another frame made a new one
            self.bank = bank = self._bank()
        bank.taken.clear()
        bank.last = None
        index = self._index_of(self._schedule())
        schedule = index.schedule
        for inner, array in self.copied:
            bank.copies[inner][...] = array
        self._start(schedule)
        run = ForwardRun(schedule, [], [])
        for height in range(schedule.heights):
            summing = height and not self.tree.arity
            run.pairs.append(self._run_pairs(index, height) if summing else [])
            run.nodes.append(self._run_nodes(index, height))
        places = self.xp.asarray(schedule.places)
        for name, out in zip(self.tree.outputs, k.list("out"), strict=True):
            if out is not None:
                take_rows(self.xp, self.buffers[name][: self.nodes], places, out)
        finals = k.list("final")
        for memory in self.memories:
            if memory.final >= 0 and finals[memory.final] is not None:
                roots = self.xp.asarray(schedule.roots)
                take_rows(self.xp, self.buffers[memory.state], roots, finals[memory.final])
        if self.saved is not None:
            self._hand_over(run)

    def _hand_over(self, run: ForwardRun) -> None:
        """Leave a run to its gradient, which tells it by the number in the slot `steps`."""
        bank, (steps,) = self.bank, self.k.op.outputs["steps"]
        bank.last = run
        bank.serial += 1
        self.k["steps"].fill(bank.serial)
        variable = self.frame.scope.find(steps)
        if variable is not None:
            ranges = [one for height in (*run.pairs, *run.nodes) for one in height]
            variable.step_scopes = [batch.scope for _, _, batch in ranges]

    def _schedule(self) -> ForestSchedule:
        """The schedule of the trees as they are now.

        Raises:
            TreeError: they are none.
        """
        k = self.k
        parents, position = to_host(k["parent"]), k.get("position")
        position = None if position is None else to_host(position)
        offsets = self.offsets[0] if self.offsets else None
        key = (
            self.tree.arity,
            parents.astype(np.int64).tobytes(),
            None if offsets is None else offsets.tobytes(),
            None if position is None else position.astype(np.int64).tobytes(),
        )
        found = _SCHEDULES.get(key)
        if found is None:
            try:
                found = make_forest_schedule(
                    parents, offsets, arity=self.tree.arity, positions=position
                )
            except TreeError as error:
                raise TreeError(k.describe(f"{self.tree.title}: {error}")) from None
            _SCHEDULES.add(key, found)
        return found

    def _index_of(self, schedule: ForestSchedule) -> ForwardIndex:
        """The index arrays of a schedule; those of the last run where it is the same."""
        if self._index is not None and self._index.schedule is schedule:
            return self._index
        xp = self.xp
        children = []
        for number, memory in enumerate(self.memories if self.tree.arity else ()):
            child = schedule.child(memory.child)
            initial: Any = self.initial_at[number]
            if not self.specs.shared_boot[number]:
                initial = initial + schedule.tree
            children.append(xp.asarray(np.where(child < self.nodes, child, initial)))
        self._index = ForwardIndex(
            schedule,
            xp.asarray(schedule.rows),
            children,
            xp.asarray(schedule.edge_child),
            xp.asarray(schedule.rows[schedule.edge_parent]),
        )
        return self._index

    def _start(self, schedule: ForestSchedule) -> None:
        """Initial states: behind the states they stand in for, or as the sums of leaves."""
        leaves = int(schedule.starts[1]) if schedule.heights else 0
        for number, memory in enumerate(self.memories):
            initial = memory.boot_value if memory.boot < 0 else self.initial_states[memory.boot]
            if self.tree.arity:
                begin = self.initial_at[number]
                end = begin + self.initial_rows(number)
                self.buffers[memory.state][begin:end] = initial
            elif self.specs.shared_boot[number]:
                self.sums[number][:leaves] = initial
            else:
                tree = self.xp.asarray(schedule.tree[:leaves])
                take_rows(self.xp, initial, tree, self.sums[number][:leaves])

    def _run_nodes(self, index: ForwardIndex, height: int) -> list[BatchRange]:
        """The node net on the nodes of a height."""
        ranges: list[BatchRange] = []
        starts = index.schedule.starts
        for begin, end in batches(int(starts[height]), int(starts[height + 1])):
            batch = self._node_batch(end - begin)
            arrays = batch.arrays
            self._fill_links(batch, index.rows[begin:end])
            for number, memory in enumerate(self.memories):
                target = arrays.get(memory.previous)
                if target is None:
                    continue
                if self.tree.arity:
                    rows = index.children[number][begin:end]
                    take_rows(self.xp, self.buffers[memory.state], rows, target)
                else:
                    target[...] = self.sums[number][begin:end]
            self._run(batch, "node net")
            for name, buffer in self.buffers.items():
                buffer[begin:end] = arrays[name]
            ranges.append((begin, end, batch))
        return ranges

    def _run(self, batch: BoundBatch, what: str) -> None:
        try:
            batch.frame.run(self.frame.state.context)
        except OpscopeError as error:
            raise self.tree.inside(error, what) from error

    def _fill_links(self, batch: BoundBatch, rows: Any) -> None:
        for name, source in self.x.items():
            target = batch.arrays.get(name)
            if target is not None:
                take_rows(self.xp, source, rows, target)

    def _run_pairs(self, index: ForwardIndex, height: int) -> list[BatchRange]:
        """The child net on the edges of a height, and the sums over the children."""
        ranges: list[BatchRange] = []
        schedule, tree = index.schedule, self.tree
        bundles = schedule.bundles[height]
        first_edge, last_edge = bundles[0][0], bundles[-1][1]
        if tree.pair is not None:
            for begin, end in batches(first_edge, last_edge):
                batch = self._pair_batch(tree.pair, end - begin)
                arrays = batch.arrays
                self._fill_links(batch, index.edge_rows[begin:end])
                for state, inner in tree.child_links:
                    if inner in arrays:
                        rows = index.edge_child[begin:end]
                        take_rows(self.xp, self.buffers[state], rows, arrays[inner])
                self._run(batch, "child net")
                for memory, summands in zip(self.memories, self.summands, strict=True):
                    if memory.by_pair:
                        summands[begin:end] = arrays[memory.state]
                ranges.append((begin, end, batch))
        first = int(schedule.starts[height])
        for memory, total, summands in zip(self.memories, self.sums, self.summands, strict=True):
            if not memory.by_pair:
                rows = index.edge_child[first_edge:last_edge]
                take_rows(self.xp, self.buffers[memory.state], rows, summands[first_edge:last_edge])
            add_bundles(total, summands, first, bundles, fresh=True)
        return ranges


def add_bundles(
    total: Any, summands: Any, first: int, bundles: tuple[tuple[int, int], ...], *, fresh: bool
) -> None:
    """Adds rows of edges to rows of their parents, which begin at `first`; `fresh` ones are set."""
    for number, (begin, end) in enumerate(bundles):
        target = total[first : first + end - begin]
        if fresh and number == 0:
            target[...] = summands[begin:end]
        else:
            target += summands[begin:end]
