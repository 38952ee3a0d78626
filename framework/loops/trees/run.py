"""Runs recursive nets: all nodes of one height as rows of a few batches, over step scopes.

The node net is bound for a number of rows, each time in a step scope of its own, and a bank keeps
what is bound: the nodes of the next forest are cut into batches of the same sizes (forest.batches).
A gradient runs in the step scopes of its forward run, where it finds what that has computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...base.backend import to_host
from ...base.context import OpContext
from ...base.errors import OpscopeError, TreeError
from ...base.scope import Scope
from ...base.shape import Meta
from ...ir.desc import BACKWARD
from ...ir.names import EMPTY, carry_name
from ...runtime.executor import Frame
from ...runtime.plain_net import PlainNet, current_options
from ...runtime.plan import analyse
from .description import Memory, Metas, TreeNet, tree_net
from .forest import ForestSchedule, batches, make_forest_schedule

_MOST_SCHEDULES = 16
_schedules: dict[tuple, ForestSchedule] = {}


class Batch:
    """A net bound for a number of rows, in a step scope of its own.

    Attributes:
        arrays: of everything the forward run reads or leaves behind.
    """

    def __init__(
        self,
        net: PlainNet,
        rows: int,
        given: Mapping[str, Meta],
        statics: Mapping[str, tuple[Any, Any]],
        parent: Scope,
        context: OpContext,
    ) -> None:
        self.rows = rows
        self.scope = Scope(parent=parent)
        for name in net.vars:  # all local: none may be found further up
            self.scope.var(name)
        for name, (shape, dtype) in given.items():
            if name in net.vars:
                self.scope.var(name).bind(context.device.xp.empty((rows, *shape[1:]), dtype))
        for name, (array, offsets) in statics.items():
            if name in net.vars:
                self.scope.var(name).bind(array, offsets)
        self.frame = net.frame(self.scope, context)
        self.arrays = self.frame.arrays
        self._gradients: dict[Any, Frame] = {}

    def gradient(self, net: PlainNet, begin: int, context: OpContext) -> Frame:
        """The bound gradient operators of `net`, from `begin` on."""
        found = self._gradients.get(net)
        if found is not None:
            return found
        for name in net.vars:
            self.scope.var(name)
        for name, array in list(self.arrays.items()):
            seed = self.scope.find(carry_name(name))
            if seed is not None:
                seed.bind(context.device.xp.empty_like(array))
        found = self._gradients[net] = net.frame(self.scope, context, begin)
        return found


@dataclass
class Bank:
    """The batches of one `recursive` operator in one scope.

    Attributes:
        signature: of what the batches are bound to; another one makes a new bank.
        copies: of static inputs whose arrays are not the same from plan to plan.
        serial, done: number of the last forward run, and what it left for its gradient.
    """

    signature: tuple
    copies: dict[str, Any] = field(default_factory=dict)
    batches: dict[tuple, list[Batch]] = field(default_factory=dict)
    taken: dict[tuple, int] = field(default_factory=dict)
    serial: int = 0
    done: Done | None = None

    def take(self, key: tuple, make: Any) -> Batch:
        """A batch that this run has not taken yet."""
        held = self.batches.setdefault(key, [])
        number = self.taken.get(key, 0)
        if number == len(held):
            held.append(make())
        self.taken[key] = number + 1
        return held[number]


Piece = tuple[int, int, Batch]
"""First place (or edge), the end, and the batch that held them."""


@dataclass
class Done:
    """A forward run: its schedule, and what ran at each height."""

    schedule: ForestSchedule
    nodes: list[list[Piece]]
    pairs: list[list[Piece]]


def take(xp: Any, source: Any, index: Any, out: Any) -> None:
    """out = source[index]; the index is in range."""
    if xp is np:
        source.take(index, 0, out, "clip")  # "raise" would go through a buffer
    else:
        source.take(index, 0, out)


class Program:
    """What forward and gradient runs share: the tree net, its links and its shapes."""

    def __init__(self, k: Any) -> None:
        self.k = k
        self.tree: TreeNet = tree_net(k.attrs["net"])
        self.frame = k.frame
        self.xp = k.xp
        shared = (k.op.type, "scratch", str(self.frame.place))
        self._blocks: list[Any] = self.frame.scope.bound.setdefault(shared, [])
        self._used = 0
        names = k.op.inputs
        self.nodes: int = k.shape("parent")[0]
        self.offsets = self.frame.offsets(names["parent"][0])
        self.trees = len(self.offsets[0]) - 1 if self.offsets else 0
        metas = [
            [self.frame.plan.metas[name] for name in names.get(slot, ())]
            for slot in ("x", "static", "boot")
        ]
        self.metas: Metas = self.tree.infer(*metas)
        self.links = {
            name: ((-1, *shape[1:]), dtype)
            for name, (shape, dtype) in zip(self.tree.inputs, metas[0], strict=True)
        }

    @property
    def memories(self) -> list[Memory]:
        return self.tree.memories

    def scratch(self, rows: int, meta: Meta) -> Any:
        """Memory for `rows` rows of what `meta` tells with an unknown number of rows.

        It is good within one call. All operators of this type in the scope share it, from frame to
        frame: trees are new in every minibatch, and fresh memory costs more than what fills it.
        """
        shape, dtype = (rows, *meta[0][1:]), meta[1]
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if self._used == len(self._blocks):
            self._blocks.append(self.xp.empty(0, np.uint8))
        if self._blocks[self._used].nbytes < size:
            self._blocks[self._used] = self.xp.empty(size + size // 4, np.uint8)
        block = self._blocks[self._used]
        self._used += 1
        return block[:size].view(dtype).reshape(shape)

    def context(self, keep: frozenset[str]) -> OpContext:
        """The context that step nets are bound in."""
        return OpContext(self.frame.place, train=self.k.train, keep=keep)

    def boot_rows(self, memory: Memory, number: int) -> int:
        return 1 if self.metas.shared_boot[number] else self.trees


class ForwardProgram(Program):
    """A `recursive` operator bound to the arrays of one frame; calling it runs all nodes."""

    def __init__(self, k: Any) -> None:
        super().__init__(k)
        tree, nodes = self.tree, self.nodes
        self.x = dict(zip(tree.inputs, k.list("x"), strict=True))
        self.boots = k.list("boot")
        self.keep, self.key = self._wanted()
        self.bank = self._bank()
        self.buffers, self.boot_at = {}, []
        extra = dict.fromkeys(tree.states, 0)
        for number, memory in enumerate(self.memories):
            if tree.arity:
                self.boot_at.append(nodes + extra[memory.state])
                extra[memory.state] += self.boot_rows(memory, number)
        for name, rows in extra.items():
            self.buffers[name] = self.scratch(nodes + rows, self.metas.node[name])
        self.sums, self.parts = [], []
        for row, dtype in self.metas.rows:
            if not tree.arity:
                self.sums.append(self.scratch(nodes, ((-1, *row), dtype)))
                self.parts.append(self.scratch(nodes, ((-1, *row), dtype)))
        self._last: ForestSchedule | None = None

    # -- binding -------------------------------------------------------------------------------

    def _wanted(self) -> tuple[frozenset[str] | None, tuple]:
        """What to keep of the node net and the child net for a gradient; None: no gradient."""
        plan, outputs = self.frame.plan, self.k.op.outputs
        (steps,) = outputs.get("steps", (EMPTY,))
        readers = [op for op in plan.operators if steps in op.input_vars()]
        if steps == EMPTY or not (readers or steps in plan.survivors):
            return None, ("recursive", *outputs.get("out", ()), *outputs.get("final", ()))
        if steps in plan.survivors:
            written = [op.output_vars() for net in self._nets() for op in net.operators]
            return frozenset(name for names in written for name in names), ("recursive", steps)
        kept: set[str] = set()
        for op in readers:
            tree = tree_net(op.attrs["net"])
            for net in (tree.node_grad, tree.pair_grad):
                kept.update(gradient_reads(net) if net else ())
        return frozenset(kept), ("recursive", steps)

    def _nets(self) -> list[PlainNet]:
        return [net for net in (self.tree.node, self.tree.pair) if net is not None]

    def _bank(self) -> Bank:
        """The bank in the run's scope, a new one where its batches do not fit this frame."""
        frame, names = self.frame, self.k.op.inputs.get("static", ())
        self.statics: dict[str, tuple[Any, Any]] = {}
        self.copied: list[tuple[str, Any]] = []
        parts: list[Any] = []
        for inner, outer, array in zip(
            self.tree.statics, names, self.k.list("static"), strict=True
        ):
            offsets = frame.offsets(outer)
            lasting = outer in frame.plan.externals
            parts.append((array if lasting else None, array.shape, array.dtype, offsets))
            self.statics[inner] = (array, offsets)
            if not lasting:
                self.copied.append((inner, array))
        own = (self.tree, self.keep, self.k.train, frame.place, current_options())
        signature = (*own, tuple(self.links.items()), tuple(self.metas.rows))
        bank = frame.scope.bound.get(self.key)
        if bank is None or bank.signature[0] != signature or not _same(bank.signature[1], parts):
            bank = Bank((signature, parts))
            for inner, array in self.copied:
                bank.copies[inner] = self.xp.empty_like(array)
            frame.scope.bound[self.key] = bank
        for inner, _ in self.copied:
            self.statics[inner] = (bank.copies[inner], self.statics[inner][1])
        return bank

    def _batch(self, pair: bool, rows: int) -> Batch:
        def make() -> Batch:
            net, tree = (self.tree.pair if pair else self.tree.node), self.tree
            given = dict(self.links)
            if pair:
                metas = [self.metas.node[state] for state, _ in tree.child_links]
                given |= dict(zip((inner for _, inner in tree.child_links), metas, strict=True))
                taken = {memory.state for memory in self.memories if memory.by_pair}
            else:
                given |= {m.previous: self.metas.node[m.previous] for m in self.memories}
                taken = set(tree.states)
            context = self.context(frozenset(taken | (self.keep or set())))
            assert net is not None  # pairs are there where a child net is
            return Batch(net, rows, given, self.statics, self.frame.scope, context)

        if self.keep is None:  # nothing is needed afterwards: the next batch may take its place
            self.bank.taken.clear()
        return self.bank.take((pair, rows), make)

    # -- running -------------------------------------------------------------------------------

    def __call__(self) -> None:
        k, bank = self.k, self.bank
        if self.frame.scope.bound.get(self.key) is not bank:  # another frame made a new one
            self.bank = bank = self._bank()
        bank.taken.clear()
        bank.done = None
        schedule = self._schedule()
        for inner, array in self.copied:
            bank.copies[inner][...] = array
        self._start()
        done = Done(schedule, [], [])
        for height in range(schedule.heights):
            done.pairs.append(self._run_pairs(height) if height and not self.tree.arity else [])
            done.nodes.append(self._run_nodes(height))
        places = self.xp.asarray(schedule.places)
        for name, out in zip(self.tree.outputs, k.list("out"), strict=True):
            if out is not None:
                take(self.xp, self.buffers[name][: self.nodes], places, out)
        finals = k.list("final")
        for memory in self.memories:
            if memory.final >= 0 and finals[memory.final] is not None:
                roots = self.xp.asarray(schedule.roots)
                take(self.xp, self.buffers[memory.state], roots, finals[memory.final])
        if self.keep is not None:
            self._hand_over(done)

    def _hand_over(self, done: Done) -> None:
        bank, (steps,) = self.bank, self.k.op.outputs["steps"]
        bank.done = done
        bank.serial += 1
        self.k["steps"].fill(bank.serial)
        variable = self.frame.scope.find(steps)
        if variable is not None:
            pieces = [piece for level in (*done.pairs, *done.nodes) for piece in level]
            variable.step_scopes = [batch.scope for _, _, batch in pieces]

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
        found = _schedules.get(key)
        if found is None:
            try:
                found = make_forest_schedule(
                    parents, offsets, arity=self.tree.arity, positions=position
                )
            except TreeError as error:
                raise TreeError(k.describe(f"{self.tree.title}: {error}")) from None
            while len(_schedules) >= _MOST_SCHEDULES:
                _schedules.pop(next(iter(_schedules)), None)
            _schedules[key] = found
        if found is not self._last:
            self._index(found)
        return found

    def _index(self, schedule: ForestSchedule) -> None:
        """Index arrays of this schedule, on the device."""
        self._last = schedule
        xp, nodes = self.xp, self.nodes
        self.rows = xp.asarray(schedule.rows)
        self.children = []
        for number, memory in enumerate(self.memories):
            if not self.tree.arity:
                break
            child = schedule.child(memory.child)
            boot = self.boot_at[number]
            if not self.metas.shared_boot[number]:
                boot = boot + schedule.tree
            self.children.append(xp.asarray(np.where(child < nodes, child, boot)))
        self.edge_child = xp.asarray(schedule.edge_child)
        self.edge_rows = xp.asarray(schedule.rows[schedule.edge_parent])

    def _start(self) -> None:
        """Boot values: behind the states they stand in for, or as what leaves have for a sum."""
        schedule = self._last
        leaves = int(schedule.starts[1]) if schedule.heights else 0
        for number, memory in enumerate(self.memories):
            boot = memory.boot_value if memory.boot < 0 else self.boots[memory.boot]
            if self.tree.arity:
                begin = self.boot_at[number]
                rows = self.boot_rows(memory, number)
                self.buffers[memory.state][begin : begin + rows] = boot
            elif self.metas.shared_boot[number]:
                self.sums[number][:leaves] = boot
            else:
                tree = self.xp.asarray(schedule.tree[:leaves])
                take(self.xp, boot, tree, self.sums[number][:leaves])

    def _run_nodes(self, height: int) -> list[Piece]:
        tree, xp, pieces = self.tree, self.xp, []
        starts = self._last.starts
        for begin, end in batches(int(starts[height]), int(starts[height + 1])):
            batch = self._batch(False, end - begin)
            arrays = batch.arrays
            self._fill_links(batch, self.rows[begin:end])
            for number, memory in enumerate(self.memories):
                target = arrays.get(memory.previous)
                if target is None:
                    continue
                if tree.arity:
                    take(xp, self.buffers[memory.state], self.children[number][begin:end], target)
                else:
                    target[...] = self.sums[number][begin:end]
            self._run(batch, "node net")
            for name, buffer in self.buffers.items():
                buffer[begin:end] = arrays[name]
            pieces.append((begin, end, batch))
        return pieces

    def _run(self, batch: Batch, what: str) -> None:
        try:
            batch.frame.run(self.frame.state.context)
        except OpscopeError as error:
            raise self.tree.inside(error, what) from error

    def _fill_links(self, batch: Batch, rows: Any) -> None:
        for name, source in self.x.items():
            target = batch.arrays.get(name)
            if target is not None:
                take(self.xp, source, rows, target)

    def _run_pairs(self, height: int) -> list[Piece]:
        """The child net on the edges of a height, and the sums over the children."""
        pieces: list[Piece] = []
        bundles = self._last.bundles[height]
        if self.tree.pair is not None:
            for begin, end in batches(bundles[0][0], bundles[-1][1]):
                batch = self._batch(True, end - begin)
                arrays = batch.arrays
                self._fill_links(batch, self.edge_rows[begin:end])
                for state, inner in self.tree.child_links:
                    if inner in arrays:
                        index = self.edge_child[begin:end]
                        take(self.xp, self.buffers[state], index, arrays[inner])
                self._run(batch, "child net")
                for memory, part in zip(self.memories, self.parts, strict=True):
                    if memory.by_pair:
                        part[begin:end] = arrays[memory.state]
                pieces.append((begin, end, batch))
        first = int(self._last.starts[height])
        for memory, total, part in zip(self.memories, self.sums, self.parts, strict=True):
            if not memory.by_pair:
                begin, end = bundles[0][0], bundles[-1][1]
                index = self.edge_child[begin:end]
                take(self.xp, self.buffers[memory.state], index, part[begin:end])
            add_bundles(total, part, first, bundles, fresh=True)
        return pieces


def add_bundles(
    total: Any, part: Any, first: int, bundles: tuple[tuple[int, int], ...], *, fresh: bool
) -> None:
    """Adds rows of edges to rows of their parents, which begin at `first`; `fresh` ones are set."""
    for number, (begin, end) in enumerate(bundles):
        target = total[first : first + end - begin]
        if fresh and number == 0:
            target[...] = part[begin:end]
        else:
            target += part[begin:end]


def _same(one: list[Any], other: list[Any]) -> bool:
    """Whether static inputs are those that a bank is bound to."""
    return len(one) == len(other) and all(
        a[0] is b[0]
        and a[1:3] == b[1:3]
        and len(a[3]) == len(b[3])
        and all(map(np.array_equal, a[3], b[3]))
        for a, b in zip(one, other, strict=True)
    )


def gradient_begin(net: PlainNet) -> int:
    """Index of the first gradient operator."""
    return next(op.index for op in net.operators if op.role == BACKWARD)


def gradient_reads(net: PlainNet) -> list[str]:
    """What the gradient operators of a net find in a step scope."""
    begin = gradient_begin(net)
    return analyse(net.operators[begin:], (), net.vars, frozenset()).externals
