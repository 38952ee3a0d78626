"""A recursive net's description, read once: node net, child net, links and memories, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...base.errors import (
    FormatError,
    OpscopeError,
    ShapeError,
    VariableError,
    format_shape,
    nearest,
)
from ...base.sizes.shape import ArraySpec, fits
from ...ir.desc import (
    FORWARD,
    INPUT,
    RECURSIVE,
    the_step,
)
from ...ir.equal_nets import shared_by_equal_nets
from ...ir.infer import infer_specs
from ...ir.op_list import MemoryDecl, OpList, StepDecl, VarDecl
from ...runtime.plain_net import PlainNet
from ..inner_links import (
    Memory,
    check_given,
    check_reads,
    check_taken,
    declared_row,
    slot_positions,
)


@dataclass(frozen=True)
class TreeMemory(Memory):
    """A state that a node hands to its parent.

    Attributes:
        child: which child's state `previous` is; without meaning where children are summed.
        by_pair: `state` is written by the child net, once for each pair of child and parent.
    """

    child: int = 0
    by_pair: bool = False


@dataclass(frozen=True)
class TreeSpecs:
    """Shapes and dtypes in one use of a recursive net.

    Attributes:
        node, pair: of every variable of the two nets; -1 for the rows.
        rows: for each memory, shape without the rows, and dtype.
        shared_boot: for each memory, whether its boot value is one row for all trees.
    """

    node: dict[str, ArraySpec]
    pair: dict[str, ArraySpec]
    rows: list[ArraySpec]
    shared_boot: list[bool]


class TreeNet:
    """The net that runs at each node, and its links to the outside.

    Attributes:
        node, pair: forward operators of the node net, and of the child net or None.
        node_grad, pair_grad: the nets as given, where gradient operators stand in them, else None.
        inputs, statics, outputs: inner names, in the order of the links.
        child_links: (what the node net writes, its name in the child net).
        states: variables of the node net that its parent or the outside needs.
        boots, finals: how many variables their slots hold.

    Raises:
        FormatError: not one step net, or fields that mean nothing for a recursive net.
        VariableError: a link or memory that does not fit the nets.
    """

    def __init__(self, desc: OpList) -> None:
        self.title = f"recursive net {desc.name!r}" if desc.name else "recursive net"
        step = the_step(desc, RECURSIVE, self.title)
        self.arity: int = step.arity
        self.inputs = [link.inner for link in step.in_links]
        self.statics = [link.inner for link in step.static_links]
        self.outputs = [link.inner for link in step.out_links]
        self.child_links = [(link.outer, link.inner) for link in step.child_links]
        self.positioned = bool(step.positions)
        self._refuse_fields(step)
        links = [*self.inputs, *self.statics]
        previous = [memory.previous for memory in step.memories]
        self.node, self.node_grad = self._split(step.net, [*links, *previous], "node net")
        self.pair = None
        self.pair_grad = None
        if step.child_net is not None:
            children = [inner for _, inner in self.child_links]
            given = [*links, *children]
            self.pair, self.pair_grad = self._split(step.child_net, given, "child net")
        self.memories = self._read_memories(step.memories)
        self.boots = sum(memory.boot >= 0 for memory in self.memories)
        self.finals = sum(memory.final >= 0 for memory in self.memories)
        self._check_given()
        self._check_taken()
        names = [memory.state for memory in self.memories if not memory.by_pair]
        names += [state for state, _ in self.child_links]
        self.states = list(dict.fromkeys([*names, *self.outputs]))

    def _split(self, desc: OpList, given: list[str], what: str) -> tuple[PlainNet, PlainNet | None]:
        try:
            return _split(desc, given)
        except OpscopeError as error:
            raise self.inside(error, what) from None

    def inside(self, error: OpscopeError, what: str) -> OpscopeError:
        """An error of an inner net, as an error of this net."""
        return type(error)(f"{self.title}, in its {what}: {error}")

    def _refuse_fields(self, step: StepDecl) -> None:
        refusals = (
            (not step.parents, "names no variable of parents"),
            (step.reverse, "is reverse: children always come before parents"),
            (step.sum_links, "has sum links, which only recurrent nets have"),
            (self.positioned and not self.arity, "has positions of children, but no arity"),
            (self.arity and step.child_net is not None, "has an arity and a child net"),
            (self.child_links and step.child_net is None, "has child links, no child net"),
        )
        for wrong, why in refusals:
            if wrong:
                raise FormatError(f"{self.title} {why}")

    def _read_memories(self, given: Iterable[MemoryDecl]) -> list[TreeMemory]:
        memories: list[TreeMemory] = []
        given = list(given)
        boots = slot_positions(memory.boot for memory in given)
        finals = slot_positions(memory.final for memory in given)
        by_node, by_pair = _written(self.node), _written(self.pair)
        for memory, boot, final in zip(given, boots, finals, strict=True):
            name = f"{self.title}: the memory {memory.state!r}"
            if memory.delay > 1:
                raise FormatError(f"{name} has delay {memory.delay}; a tree has no further back")
            if memory.child >= max(self.arity, 1):
                raise FormatError(f"{name} is of child {memory.child}, but arity is {self.arity}")
            if memory.state not in by_node | by_pair:
                hint = nearest(memory.state, by_node | by_pair)
                raise VariableError(f"{name} is written by no operator{hint}")
            pair = memory.state not in by_node
            if pair and memory.final:
                raise FormatError(f"{name} is of pairs, so a root has no final value of it")
            memories.append(
                TreeMemory(
                    memory.state,
                    memory.previous,
                    boot,
                    memory.boot_value,
                    final,
                    child=memory.child,
                    by_pair=pair,
                )
            )
        return memories

    # -- checks --------------------------------------------------------------------------------

    def _check_given(self) -> None:
        """Every variable that the nets read has one link or memory, and nothing overwrites it."""
        common = [*self.inputs, *self.statics]
        for what, net, own in (
            ("node net", self.node, [memory.previous for memory in self.memories]),
            ("child net", self.pair, [inner for _, inner in self.child_links]),
        ):
            if net is None:
                continue
            given = [*common, *own]
            check_given(self.title, what, given, _written(net))
            check_reads(self.title, what, given, net.operators, net.vars)

    def _check_taken(self) -> None:
        taken = [("its out link takes", name) for name in self.outputs]
        taken += [("its child link takes", name) for name, _ in self.child_links]
        check_taken(self.title, "node net", taken, _written(self.node))

    # -- shapes --------------------------------------------------------------------------------

    def infer(
        self, inputs: Sequence[ArraySpec], statics: Sequence[ArraySpec], boots: Sequence[ArraySpec]
    ) -> TreeSpecs:
        """Shapes and dtypes of everything inside, inferred from the links.

        Raises:
            ShapeError: an operator refuses its inputs, the shape of a memory is unknown or differs
                from its state's, or an out-link has no row for each node.
        """
        links = {
            name: ((-1, *shape[1:]), dtype)
            for name, (shape, dtype) in zip(self.inputs, inputs, strict=True)
        }
        links |= dict(zip(self.statics, statics, strict=True))
        rows, shared = [], []
        for memory in self.memories:
            boot = boots[memory.boot] if memory.boot >= 0 else None
            row, one_for_all = self._row_of(memory, boot)
            rows.append(row)
            shared.append(one_for_all)
        given = zip(self.memories, rows, strict=True)
        known = {memory.previous: ((-1, *row), dtype) for memory, (row, dtype) in given}
        node = self._infer(self.node, links | known, "node net")
        pair: dict[str, ArraySpec] = {}
        if self.pair is not None:
            children = {inner: node[state] for state, inner in self.child_links}
            pair = self._infer(self.pair, links | children, "child net")
        for memory, (row, dtype) in zip(self.memories, rows, strict=True):
            shape, own_dtype = (pair if memory.by_pair else node)[memory.state]
            if not fits(shape, (-1, *row)) or own_dtype != dtype:
                raise ShapeError(
                    f"{self.title}: the memory {memory.state!r} is {own_dtype}{format_shape(shape)}"
                    f" and {memory.previous!r} is {dtype}{format_shape((-1, *row))}"
                )
        for name in self.states:
            shape = node[name][0]
            # How many nodes there are is not known here, so a row for each node shows as -1.
            if not shape or shape[0] >= 0:
                raise ShapeError(
                    f"{self.title}: {name!r} {format_shape(shape)} has no row for each node"
                )
        return TreeSpecs(node, pair, rows, shared)

    def _infer(
        self, net: PlainNet, known: Mapping[str, ArraySpec], what: str
    ) -> dict[str, ArraySpec]:
        try:
            return infer_specs(net.operators, known, net.vars, {})
        except OpscopeError as error:
            raise self.inside(error, what) from None

    def _row_of(self, memory: TreeMemory, boot: ArraySpec | None) -> tuple[ArraySpec, bool]:
        """Shape (without rows) and dtype of a memory, and whether its boot value is one row."""
        declared = self._declared_row(memory)
        if boot is None:
            if declared is None:
                raise ShapeError(
                    f"{self.title}: the memory {memory.state!r} has neither a boot variable nor a"
                    f" declared shape; declare {memory.previous!r} in the node net with its dims"
                )
            return declared, True
        if declared is None:
            return boot, True
        shape, dtype = declared
        # The rank tells: a boot value with a row for each tree has one axis more than the state.
        shared = len(boot[0]) == len(shape)
        if boot[1] != dtype or not fits(boot[0], shape if shared else (-1, *shape)):
            raise ShapeError(
                f"{self.title}: the memory {memory.state!r} is {dtype}{format_shape((-1, *shape))}"
                f" and its boot value {boot[1]}{format_shape(boot[0])}; want one row for all trees"
                " or one for each"
            )
        return declared, shared

    def _declared_row(self, memory: TreeMemory) -> ArraySpec | None:
        writer = self.pair if memory.by_pair and self.pair is not None else self.node
        return declared_row(self.node.vars.get(memory.previous), writer.vars.get(memory.state))


def _split(desc: OpList, given: Iterable[str]) -> tuple[PlainNet, PlainNet | None]:
    """The forward operators as a net, and the whole net where it holds gradient operators.

    Variables `given` from outside are declared as inputs; what only the gradient names is left out.
    """
    whole, forward = desc.copy(), desc.copy()
    forward.ops = [op for op in desc.ops if op.role == FORWARD]
    used = {name for op in forward.ops for name in (*op.input_names(), *op.output_names())}
    read = dict.fromkeys(name for name in given if name in used)
    whole.vars = [var.changed(kind=INPUT) if var.name in read else var for var in desc.vars]
    declared = {var.name for var in desc.vars}
    whole.vars += [VarDecl(name, kind=INPUT) for name in read if name not in declared]
    forward.vars = [var for var in whole.vars if var.name in used]
    whole_net = PlainNet(whole, check=False) if len(forward.ops) < len(whole.ops) else None
    return PlainNet(forward, check=False), whole_net


def _written(net: PlainNet | None) -> set[str]:
    return {name for op in net.operators for name in op.output_vars()} if net else set()


@shared_by_equal_nets
def tree_net(net: OpList) -> TreeNet:
    """The `TreeNet` of a net; equal nets share one."""
    return TreeNet(net)
