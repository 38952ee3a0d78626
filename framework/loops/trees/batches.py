"""The inner nets of a forward run, bound for batches of nodes that the bank of a scope holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...base.backend import address
from ...base.options.settings import current
from ...base.sizes.shape import ArraySpec, Levels
from ...runtime.plain_net import PlainNet
from ...runtime.plans.memory import hold
from ..inner_gradient import saving_of
from .bank import Bank, BatchRange, BoundBatch, ForwardRun, StaticInput, gradient_reads
from .binding import TreeBinding
from .description import tree_net


class ForwardBatches:
    """Batches of the node net and of the child net, each bound when it is first wanted.

    Attributes:
        saved: variables that the batches save for a gradient; None where there is no gradient.
    """

    def __init__(self, b: TreeBinding) -> None:
        self._b = b
        self.saved, self._key = _saved_names(b)
        self._bank = self._find_bank()

    def _find_bank(self) -> Bank:
        """The bank in the run's scope, a new one where its batches do not fit this frame."""
        b = self._b
        frame = b.frame
        names = b.k.op.inputs.get("static", ())
        self._statics: dict[str, tuple[Any, Levels]] = {}
        self._copied: list[tuple[str, Any]] = []
        statics: list[StaticInput] = []
        for inner, outer, array in zip(b.tree.statics, names, b.k.list("static"), strict=True):
            offsets = frame.offsets(outer)
            # A temporary of the net around may lie elsewhere in another plan; batches are bound to
            # a copy then.
            is_fixed = outer in frame.plan.externals
            fixed = array if is_fixed else None
            statics.append(StaticInput(fixed, array.shape, array.dtype, offsets))
            self._statics[inner] = (array, offsets)
            if not is_fixed:
                self._copied.append((inner, array))
        own = (b.tree, self.saved, b.k.train, frame.place, current())
        signature = (*own, tuple(b.links.items()), tuple(b.specs.rows))
        bank: Bank | None = frame.scope.bound.get(self._key)
        if bank is None or not bank.serves(signature, statics):
            bank = Bank(signature, statics)
            for inner, array in self._copied:
                bank.copies[inner] = b.xp.empty_like(array)
            hold(frame.scope, self._key, bank)
        for inner, _ in self._copied:
            self._statics[inner] = (bank.copies[inner], self._statics[inner][1])
        return bank

    def begin_run(self) -> None:
        """Give all batches free; the gradient of the last run can no longer be computed."""
        if self._b.frame.scope.bound.get(self._key) is not self._bank:
            self._bank = self._find_bank()  # another frame made a new one
        self._bank.taken.clear()
        # Batches are about to be written over: a gradient of the former run would read this one's
        # values.
        self._bank.last = None

    def copy_statics(self) -> None:
        """Bring the copies of static inputs up to date."""
        for inner, array in self._copied:
            self._bank.copies[inner][...] = array

    def of_nodes(self, rows: int) -> BoundBatch:
        """The node net, bound for a number of nodes."""

        def make() -> BoundBatch:
            specs = self._b.specs.node
            given = self._b.links | {m.previous: specs[m.previous] for m in self._b.memories}
            return self._bind(self._b.tree.node, rows, given, self._b.tree.states)

        return self._take((False, rows), make)

    def of_edges(self, net: PlainNet, rows: int) -> BoundBatch:
        """The child net, bound for a number of edges."""

        def make() -> BoundBatch:
            b = self._b
            given = b.links | {inner: b.specs.node[state] for state, inner in b.tree.child_links}
            states = [memory.state for memory in b.memories if memory.by_pair]
            return self._bind(net, rows, given, states)

        return self._take((True, rows), make)

    def _bind(
        self, net: PlainNet, rows: int, given: dict[str, ArraySpec], states: list[str]
    ) -> BoundBatch:
        context = self._b.context(frozenset({*states, *(self.saved or ())}))
        return BoundBatch(net, rows, given, self._statics, self._b.frame.scope, context)

    def _take(self, key: tuple[bool, int], make: Callable[[], BoundBatch]) -> BoundBatch:
        if self.saved is None:  # nothing is needed afterwards: the next batch may take its place
            self._bank.taken.clear()
        return self._bank.take(key, make)

    def hand_over(self, run: ForwardRun) -> None:
        """Leave a run to its gradient, which knows it by the number in the slot `steps`."""
        k = self._b.k
        bank = self._bank
        (steps,) = k.op.outputs["steps"]
        bank.last = run
        bank.serial += 1
        k["steps"].fill(bank.serial)
        bank.filled[address(k["steps"])] = bank.serial
        variable = k.scope.find(steps)
        if variable is not None:
            ranges: list[BatchRange] = [r for height in (*run.pairs, *run.nodes) for r in height]
            variable.step_scopes = [batch.scope for _, _, batch in ranges]


def _saved_names(b: TreeBinding) -> tuple[frozenset[str] | None, tuple[str, ...]]:
    """Variables to save for a gradient (None: there is no gradient), and the key of the bank."""
    outputs = b.k.op.outputs
    saving = saving_of(b.k.op, b.frame.plan)
    if not saving.wanted:
        return None, ("recursive", *outputs.get("out", ()), *outputs.get("final", ()))
    names: set[str] = set()
    if saving.everything:
        for net in (b.tree.node, b.tree.pair):
            operators = net.operators if net is not None else ()
            names.update(name for op in operators for name in op.output_vars())
    else:
        for op in saving.readers:
            tree = tree_net(op.attrs["net"])
            for net in (tree.node_grad, tree.pair_grad):
                names.update(gradient_reads(net) if net is not None else ())
    return frozenset(names), ("recursive", saving.steps)
