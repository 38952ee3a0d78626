"""Runs recursive nets: all nodes of one height as rows of a few batches.

Binding makes three values, and each run takes a few steps over them:

    TreeBinding          links, shapes and memory of the operator         binding.py
    bind_states          buffers for the states of all nodes              states.py
    ForwardBatches       inner nets, bound for numbers of rows            batches.py

    schedule_of          the trees as they are now, in heights            binding.py
    forward_index        where each node finds its inputs and children    states.py
    fill_initial_states  states below the leaves                          states.py
    _run_pairs           height by height: the child net, and the sums over children
    _run_nodes           then the node net on the nodes of that height
    _write_outputs       out-links and states of roots
    hand_over            what the gradient needs                          batches.py
"""

from __future__ import annotations

from typing import Any

from ...fusion.rows.row_copies import take_rows
from ...ir.kernel_args import KernelArgs
from .bank import BatchRange, BoundBatch, ForwardRun
from .batches import ForwardBatches
from .binding import TreeBinding, schedule_of
from .forest import ForestSchedule, batches
from .states import ForwardIndex, add_bundles, bind_states, fill_initial_states, forward_index


class TreeForwardProgram:
    """A `recursive` operator bound to the arrays of one frame; calling it runs all nodes."""

    def __init__(self, k: KernelArgs) -> None:
        self._binding = b = TreeBinding(k)
        self._x = dict(zip(b.tree.inputs, k.list("x"), strict=True))
        self._batches = ForwardBatches(b)
        self._buffers = bind_states(b)
        self._last_index: ForwardIndex | None = None

    def __call__(self) -> None:
        b = self._binding
        self._batches.begin_run()
        schedule = schedule_of(b)
        index = self._index_of(schedule)
        self._batches.copy_statics()
        fill_initial_states(b, self._buffers, schedule)
        run = ForwardRun(schedule, [], [])
        for height in range(schedule.heights):
            # Leaves have no children: their sums are the initial states.
            summing = height and not b.tree.arity
            run.pairs.append(self._run_pairs(index, height) if summing else [])
            run.nodes.append(self._run_nodes(index, height))
        self._write_outputs(schedule)
        if self._batches.saved is not None:
            self._batches.hand_over(run)

    def _index_of(self, schedule: ForestSchedule) -> ForwardIndex:
        """The index arrays of a schedule, kept from the last run if the schedule is the same."""
        # By identity: `schedule_of` gives one object for equal trees.
        if self._last_index is None or self._last_index.schedule is not schedule:
            self._last_index = forward_index(self._binding, self._buffers, schedule)
        return self._last_index

    def _run_nodes(self, index: ForwardIndex, height: int) -> list[BatchRange]:
        """The node net on the nodes of a height."""
        b = self._binding
        states = self._buffers.states
        ranges: list[BatchRange] = []
        starts = index.schedule.starts
        for begin, end in batches(int(starts[height]), int(starts[height + 1])):
            batch = self._batches.of_nodes(end - begin)
            arrays = batch.arrays
            self._fill_links(batch, index.rows[begin:end])
            for number, memory in enumerate(b.memories):
                target = arrays.get(memory.previous)
                if target is None:
                    continue
                if b.tree.arity:
                    rows = index.children[number][begin:end]
                    take_rows(b.xp, states[memory.state], rows, target)
                else:
                    target[...] = self._buffers.sums[number][begin:end]
            b.run(batch, "node net")
            for name, buffer in states.items():
                buffer[begin:end] = arrays[name]
            ranges.append((begin, end, batch))
        return ranges

    def _run_pairs(self, index: ForwardIndex, height: int) -> list[BatchRange]:
        """The child net on the edges of a height, and the sums over the children."""
        b, buffers = self._binding, self._buffers
        ranges: list[BatchRange] = []
        schedule, tree = index.schedule, b.tree
        bundles = schedule.bundles[height]
        first_edge = bundles[0][0]
        last_edge = bundles[-1][1]
        if tree.pair is not None:
            for begin, end in batches(first_edge, last_edge):
                batch = self._batches.of_edges(tree.pair, end - begin)
                arrays = batch.arrays
                self._fill_links(batch, index.edge_rows[begin:end])
                for state, inner in tree.child_links:
                    if inner in arrays:
                        rows = index.edge_child[begin:end]
                        take_rows(b.xp, buffers.states[state], rows, arrays[inner])
                b.run(batch, "child net")
                for memory, summands in zip(b.memories, buffers.summands, strict=True):
                    if memory.by_pair:
                        summands[begin:end] = arrays[memory.state]
                ranges.append((begin, end, batch))
        first = int(schedule.starts[height])
        for memory, total, summands in zip(b.memories, buffers.sums, buffers.summands, strict=True):
            if not memory.by_pair:
                rows = index.edge_child[first_edge:last_edge]
                target = summands[first_edge:last_edge]
                take_rows(b.xp, buffers.states[memory.state], rows, target)
            add_bundles(total, summands, first, bundles, fresh=True)
        return ranges

    def _fill_links(self, batch: BoundBatch, rows: Any) -> None:
        for name, source in self._x.items():
            target = batch.arrays.get(name)
            if target is not None:
                take_rows(self._binding.xp, source, rows, target)

    def _write_outputs(self, schedule: ForestSchedule) -> None:
        """Out-links in the order of the rows outside, and the states of roots."""
        b = self._binding
        states = self._buffers.states
        places = b.xp.asarray(schedule.places)
        for name, out in zip(b.tree.outputs, b.k.list("out"), strict=True):
            if out is not None:
                take_rows(b.xp, states[name][: b.nodes], places, out)
        finals = b.k.list("final")
        for memory in b.memories:
            if memory.final >= 0 and finals[memory.final] is not None:
                roots = b.xp.asarray(schedule.roots)
                take_rows(b.xp, states[memory.state], roots, finals[memory.final])
