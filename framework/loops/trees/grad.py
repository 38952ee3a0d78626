"""The gradient of a recursive net: its node net with gradient operators, run from the roots down.

The gradient operators come from the same backward pass as any gradient, with respect to links and
to what each node got from its children. They run in the step scopes of the forward run; what a node
hands down to its children is stored by place and taken up when these run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.backend import address
from ...base.errors import RunError
from ...fusion.rows.row_copies import take_rows
from ...ir.desc import INPUT, make_var
from ...ir.gradient_args import GradientArgs
from ...ir.kernel_args import KernelArgs
from ...ir.names import EMPTY, carry_name, grad_name, linked_grad_name, rows_name
from ...ir.op_list import OpList, OpNode
from ...passes.backward import build_backward
from ...runtime.plain_net import PlainNet
from ..inner_gradient import dense_gradient, require_steps
from .bank import Bank, BatchRange, ForwardRun, gradient_begin
from .binding import TreeBinding
from .description import tree_net
from .forest import ForestSchedule
from .states import add_bundles


def make_gradient(g: GradientArgs) -> list[OpNode]:
    """The gradient maker of `recursive`: one `recursive_grad` over the nets with their gradients.

    Raises:
        GradientError: the operator has no variable in the slot `steps`, or an operator inside has
            no gradient.
    """
    tree = tree_net(g.attrs["net"])
    net = g.attrs["net"].copy()
    require_steps(g, tree.title, "what the forward run kept")
    wanted = {slot: g.input_grads(slot) for slot in ("x", "static", "boot")}
    links = [*zip(tree.inputs, wanted["x"], strict=True)]
    links += zip(tree.statics, wanted["static"], strict=True)
    inner = [name for name, grad in links if grad != EMPTY]
    (step,) = net.steps
    previous = [memory.previous for memory in tree.memories]
    step.net = _with_gradient(tree.node, tree.states, inner + previous)
    if tree.pair is not None:
        parts = [memory.state for memory in tree.memories if memory.by_pair]
        children = [name for _, name in tree.child_links]
        step.child_net = _with_gradient(tree.pair, parts, inner + children)
    reads = {slot: g.inputs(slot) for slot in ("parent", "position", "x", "static", "boot")}
    reads["steps"] = g.outputs("steps")
    reads |= {f"{slot}_grad": g.arriving_grads(slot) for slot in ("out", "final")}
    writes = {f"{slot}_grad": names for slot, names in wanted.items()}
    # Slots hold no gaps, so attributes say which out-links and roots have a gradient.
    attrs = {
        "net": net,
        "outs": [name != EMPTY for name in reads["out_grad"]],
        "finals": [name != EMPTY for name in reads["final_grad"]],
    }
    for slot in ("out_grad", "final_grad"):
        reads[slot] = [name for name in reads[slot] if name != EMPTY]
    return [g.op("recursive_grad", reads, writes, attrs)]


def _with_gradient(net: PlainNet, targets: list[str], wrt: list[str]) -> OpList:
    """A net with the operators that lead from gradients of `targets` to gradients of `wrt`."""
    extended = net.op_list
    known = {name for op in net.operators for name in (*op.input_vars(), *op.output_vars())}
    read = [name for name in dict.fromkeys(wrt) if name in known]
    seeds = {name: carry_name(name) for name in targets}
    result = build_backward(extended, targets=seeds, wrt=read, required=False)
    written = {name for op in result.ops for name in op.output_names()}
    for name, gradient in result.gradients.items():
        if rows_name(gradient) in written:
            result.ops.append(dense_gradient(name, gradient, linked_grad_name(name, 0)))
    extended.ops += result.ops
    used = {name for op in result.ops for name in op.input_names()}
    extended.vars += [make_var(seed, None, None, INPUT) for seed in seeds.values() if seed in used]
    return extended


class _Flow:
    """The gradient operators of the node net or of the child net.

    Attributes:
        net: None where nothing flows.
        seeds: variable -> the variable that takes its gradient, where one is read.
        gradients: variable -> its gradient, for what flows back.
    """

    def __init__(self, net: PlainNet | None, targets: list[str], wrt: list[str]) -> None:
        self.net = net
        self.seeds: dict[str, str] = {}
        self.gradients: dict[str, str] = {}
        if net is None:
            return
        self.begin = gradient_begin(net)
        ops = net.operators[self.begin :]
        read = {name for op in ops for name in op.input_vars()}
        written = {name for op in ops for name in op.output_vars()}
        self.seeds = {name: carry_name(name) for name in targets if carry_name(name) in read}
        for name in wrt:
            # The dense form that `_with_gradient` adds to sparse rows comes first: rows of several
            # batches could not be added place by place.
            for grad in (linked_grad_name(name, 0), grad_name(name)):
                if grad in written:
                    self.gradients[name] = grad
                    break
        self.live_out = frozenset(self.gradients.values())


class TreeGradientProgram:
    """A `recursive_grad` operator bound to the arrays of one frame."""

    def __init__(self, k: KernelArgs) -> None:
        self._b = b = TreeBinding(k)
        tree, nodes = b.tree, b.nodes
        previous = [memory.previous for memory in b.memories]
        children = [inner for _, inner in tree.child_links]
        links = [*tree.inputs, *tree.statics]
        parts = [memory.state for memory in b.memories if memory.by_pair]
        self.node = _Flow(tree.node_grad, tree.states, links + previous)
        self.pair = _Flow(tree.pair_grad, parts, links + children)
        self.node_context = b.context(self.node.live_out if self.node.net else frozenset())
        self.pair_context = b.context(self.pair.live_out if self.pair.net else frozenset())
        self.x_grads = self._wanted("x_grad", tree.inputs)
        self.static_grads = self._wanted("static_grad", tree.statics)
        self.boot_grads = k.list("boot_grad")
        self.totals = {name: b.scratch(nodes, b.links[name]) for name in self.x_grads}
        specs = b.specs
        self.arriving = {name: b.scratch(nodes, specs.node[name]) for name in self.node.seeds}
        # One row more, of zeros: it is what roots take.
        self.down = {
            number: b.scratch(nodes + 1, specs.node[memory.previous])
            for number, memory in enumerate(b.memories)
            if memory.previous in self.node.gradients
        }
        self.across = {
            inner: b.scratch(nodes + 1, specs.node[state])
            for state, inner in tree.child_links
            if inner in self.pair.gradients
        }
        self.edge_links = {
            name: b.scratch(nodes, b.links[name])
            for name in self.x_grads
            if name in self.pair.gradients
        }
        largest = [*self.down.values(), *self.across.values()]
        # `target += source[index]` would allocate for each height.
        self.spare = {
            (array.shape[1:], array.dtype): b.scratch(len(array), (array.shape, array.dtype))
            for array in largest
        }

    def _wanted(self, slot: str, inner: list[str]) -> dict[str, Any]:
        arrays = self._b.k.list(slot)
        pairs = zip(inner, arrays, strict=True) if arrays else ()
        return {name: array for name, array in pairs if array is not None}

    # -- running -------------------------------------------------------------------------------

    def __call__(self) -> None:
        run = self._forward_run()
        schedule = run.schedule
        self._index(schedule)
        for array in (*self.totals.values(), *self.static_grads.values()):
            array.fill(0)
        for array in (*self.down.values(), *self.across.values()):
            array[-1] = 0
        self._arrive(schedule)
        # From the roots down: what a parent hands to its children is there when these run.
        for height in reversed(range(schedule.heights)):
            for piece in run.nodes[height]:
                self._run_nodes(piece)
            for piece in run.pairs[height]:
                self._run_pairs(piece)
            if run.pairs[height]:
                first = int(schedule.starts[height])
                for name, part in self.edge_links.items():
                    bundles = schedule.bundles[height]
                    add_bundles(self.totals[name], part, first, bundles, fresh=False)
        # Nodes run in the order of heights; their gradients go back to the order of the rows.
        places = self._b.xp.asarray(schedule.places)
        for name, out in self.x_grads.items():
            take_rows(self._b.xp, self.totals[name], places, out)
        self._initial_grads(schedule)

    def _forward_run(self) -> ForwardRun:
        """The forward run to differentiate.

        Raises:
            RunError: there was none, or another run has followed it.
        """
        (steps,) = self._b.k.op.inputs["steps"]
        bank: Bank | None = self._b.frame.scope.bound.get(("recursive", steps))
        left = self._b.k["steps"]
        # A GPU is asked only for what was copied to other memory since.
        known = None if bank is None or isinstance(left, np.ndarray) else bank.filled
        serial = (known or {}).get(address(left)) or int(left[0])
        # The batches hold the values of their last run: of an earlier one the gradient would be
        # silently wrong.
        if bank is None or bank.last is None or bank.serial != serial:
            why = f"{steps!r} is not what the last forward run left in this scope"
            raise RunError(self._b.k.describe(f"{self._b.tree.title}: {why}"))
        return bank.last

    def _index(self, schedule: ForestSchedule) -> None:
        """For each memory, whose row of `down` a node takes; for child links, of `across`."""
        xp, nodes = self._b.xp, self._b.nodes
        parent = schedule.parent
        self.above = {}
        for number in self.down:
            memory = self._b.memories[number]
            if self._b.tree.arity:
                # A node takes only what its parent hands down to this place among its children.
                mine = schedule.position == memory.child
                self.above[number] = xp.asarray(np.where(mine, parent, nodes))
            else:
                self.above[number] = xp.asarray(parent)
        edges = len(schedule.edge_child)
        self.edge = xp.asarray(np.where(schedule.edge < edges, schedule.edge, nodes))
        self.edge_parent = xp.asarray(schedule.edge_parent)

    def _arrive(self, schedule: ForestSchedule) -> None:
        """Take the gradients of out-links and roots from outside."""
        k, xp = self._b.k, self._b.xp
        rows, roots = xp.asarray(schedule.rows), xp.asarray(schedule.roots)
        for array in self.arriving.values():
            array.fill(0)
        outs = [
            name for name, there in zip(self._b.tree.outputs, k.attrs["outs"], strict=True) if there
        ]
        for name, grad in zip(outs, k.list("out_grad"), strict=True):
            if name in self.arriving:
                self.arriving[name] += grad[rows]
        finals = iter(k.list("final_grad"))
        there = k.attrs["finals"]
        for memory in self._b.memories:
            if memory.final >= 0 and there[memory.final]:
                grad = next(finals)
                if memory.state in self.arriving:
                    self.arriving[memory.state][roots] += grad

    def _run_nodes(self, piece: BatchRange) -> None:
        begin, end, batch = piece
        if self.node.net is None:
            return
        frame = batch.gradient(self.node.net, self.node.begin, self.node_context)
        for state, seed in self.node.seeds.items():
            target = frame.arrays[seed]
            target[...] = self.arriving[state][begin:end]
            for number, index in self.above.items():
                memory = self._b.memories[number]
                if memory.state == state and not memory.by_pair:
                    self._add(target, self.down[number], index[begin:end])
            for link, inner in self._b.tree.child_links:
                if link == state and inner in self.across:
                    self._add(target, self.across[inner], self.edge[begin:end])
        frame.run(self._b.frame.state.context)
        arrays = frame.arrays
        for number, array in self.down.items():
            array[begin:end] = arrays[self.node.gradients[self._b.memories[number].previous]]
        for name, total in self.totals.items():
            if name in self.node.gradients:
                total[begin:end] = arrays[self.node.gradients[name]]
        self._sum_statics(self.node, arrays)

    def _add(self, target: Any, source: Any, index: Any) -> None:
        """target += source[index]"""
        spare = self.spare[(source.shape[1:], source.dtype)][: len(index)]
        take_rows(self._b.xp, source, index, spare)
        target += spare

    def _sum_statics(self, flow: _Flow, arrays: Any) -> None:
        for name, total in self.static_grads.items():
            if name in flow.gradients:
                total += arrays[flow.gradients[name]]

    def _run_pairs(self, piece: BatchRange) -> None:
        begin, end, batch = piece
        if self.pair.net is None:
            return
        frame = batch.gradient(self.pair.net, self.pair.begin, self.pair_context)
        for state, seed in self.pair.seeds.items():
            target = frame.arrays[seed]
            target.fill(0)
            for number, array in self.down.items():
                memory = self._b.memories[number]
                if memory.by_pair and memory.state == state:
                    self._add(target, array, self.edge_parent[begin:end])
        frame.run(self._b.frame.state.context)
        arrays = frame.arrays
        for inner, array in self.across.items():
            array[begin:end] = arrays[self.pair.gradients[inner]]
        for name, part in self.edge_links.items():
            part[begin:end] = arrays[self.pair.gradients[name]]
        self._sum_statics(self.pair, arrays)

    def _initial_grads(self, schedule: ForestSchedule) -> None:
        """Gradients of boot values: of all that took them in the place of a child."""
        leaves = int(schedule.starts[1]) if schedule.heights else 0
        for out in self.boot_grads:
            if out is not None:
                out.fill(0)
        if not self.boot_grads:
            return
        for number, array in self.down.items():
            memory = self._b.memories[number]
            out = self.boot_grads[memory.boot] if memory.boot >= 0 else None
            if out is None:
                continue
            places = np.arange(leaves)
            if self._b.tree.arity:
                places = np.flatnonzero(schedule.child(memory.child) == schedule.nodes)
            rows = array[self._b.xp.asarray(places)]
            if self._b.specs.shared_boot[number]:
                out += rows.sum(axis=0)
            else:
                # Not out[...] += rows: several nodes of a tree took the same boot value, and only
                # `add.at` adds up what meets at one row.
                self._b.xp.add.at(out, self._b.xp.asarray(schedule.tree[places]), rows)
