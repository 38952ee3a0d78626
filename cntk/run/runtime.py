"""A network that runs: parameters in a scope, nodes as operators, data as minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ...framework.base.backend import Place
from ...framework.base.context import OpContext
from ...framework.base.dtypes import to_dtype
from ...framework.base.errors import VariableError
from ...framework.base.files.atomic import PathLike
from ...framework.base.scope import Scope
from ...framework.base.sequence import Sequences, bincount, offsets_of
from ...framework.ir.names import rows_name
from ...framework.ir.op_list import OpList
from ...framework.passes.backward import build_backward
from ...framework.runtime.plain_net import PlainNet
from ..lattices.lattice import feed_lattices
from ..lower import Lowered, Sparse, lower
from ..lower.emitter import PARAMETER, dims, size
from ..models.v1 import write_model
from ..network.initialize import initialize
from ..network.network import Network
from ..network.nodes.node import DynamicAxis, Node
from ..readers.base.data import Samples
from ..readers.base.layout import Layout, packed
from ..readers.base.pack import Minibatch
from .carry import Carrier, goes_on
from .values import Data, NodeValue, in_lists, minibatch_of, result_of, whole_gradient

Pass = Callable[[OpList], OpList]


class Watcher(Protocol):
    """Sees values of nodes after each run of a bound net."""

    def nodes(self, below: Sequence[Node]) -> Sequence[Node]:
        """The nodes whose values the watcher wants, of those that a net computes."""
        ...

    def extra_gradients(self, below: Sequence[Node]) -> Sequence[Node]:
        """The nodes whose gradients the watcher wants, where the net computes gradients."""
        ...

    def show(self, bound: BoundNet) -> None:
        """Called after a run."""
        ...


class BoundNet:
    """Some nodes of a network as a net that is ready to run.

    Attributes:
        net: the operators.
        lowered: how the net is fed from minibatches.
        gradients: parameter -> the variable of its gradient, where there is a criterion.
        extra_gradients: node -> the variable of its gradient, for the nodes that were named.
        below: all nodes that the net computes, where there is a watcher.
    """

    def __init__(
        self,
        scope: Scope,
        lowered: Lowered,
        net: PlainNet,
        gradients: dict[str, str],
        live_out: frozenset[str],
        conditions: dict[Node, BoundNet],
        extra_gradients: dict[Node, str] | None = None,
        watcher: Watcher | None = None,
        below: frozenset[Node] = frozenset(),
    ) -> None:
        self.scope = scope
        self.lowered = lowered
        self.net = net
        self.below = below
        self.gradients = gradients
        self.extra_gradients = extra_gradients or {}
        self._watcher = watcher
        self._live_out = live_out
        self._conditions = conditions
        across = lowered.delays or lowered.backwards
        self._carrier = Carrier(scope, lowered) if across else None
        self._layouts: dict[DynamicAxis | None, tuple[np.ndarray, Layout]] = {}

    def run(self, minibatch: Minibatch, context: OpContext | None = None) -> None:
        """Feed a minibatch and run all operators.

        Raises:
            ShapeError: a stream is missing, or has another dimension than its input.
        """
        context = (context or OpContext()).derive(
            train=context is not None and context.train, live_out=self._live_out
        )
        self.feed(minibatch, context)
        self.net.run(self.scope, context)
        if self._carrier is not None:
            self._carrier.save(self._layouts)
        if self._watcher is not None:
            self._watcher.show(self)

    def feed(self, minibatch: Minibatch, context: OpContext) -> None:
        """Write the samples of a minibatch into the scope, with their columns and positions."""
        self._layouts = {}
        for node, sparse in self.lowered.inputs.items():
            samples = minibatch.streams.get(node.name)
            if samples is None:
                known = ", ".join(sorted(minibatch.streams)) or "none"
                raise node.error(f"the minibatch has no stream {node.name!r} (it has {known})")
            layout = minibatch.layouts.get(node.name) or packed(samples.lengths)
            self._place(node, samples.begin, layout)
            if sparse:
                self._feed_sparse(node, samples)
            else:
                self._feed_dense(node, samples)
        for node in self.lowered.lattices:
            if minibatch.lattices is None:
                raise node.error("the minibatch has no lattices: its reader gives none")
            if node.attributes["doReferenceAlign"] and not minibatch.lattices.have_references:
                raise node.error(
                    "doReferenceAlign needs the phones that were said: the fifth column of label"
                    " files"
                )
            begin, _ = self._layouts[node.inputs[0].axis]
            feed_lattices(self.scope, node.name, minibatch.lattices, begin)
        for node, bound in self._conditions.items():
            bound.run(minibatch, context)
            self._feed_positions(node, bound.value(node.inputs[0]))
        if self._carrier is not None:
            self._carrier.feed(self._layouts)
        for axis, (columns, grid) in self.lowered.columns.items():
            begin, layout = self._layouts[axis]
            rows = layout.column
            if axis in self.lowered.sequences:
                rows = Sequences(rows, (begin,))
            self.scope.var(columns).set(rows)
            self.scope.var(grid).set(np.array([layout.parallel, layout.steps], np.int64))

    def _place(self, node: Node, begin: np.ndarray, layout: Layout) -> None:
        first, _ = self._layouts.setdefault(node.axis, (begin, layout))
        if first is not begin and not np.array_equal(first, begin):
            assert node.axis is not None
            raise node.error(
                f"its sequences differ in length from other inputs with the dynamic axis"
                f" {node.axis.name!r}; give it an axis of its own"
            )

    def _feed_dense(self, node: Node, samples: Samples) -> None:
        rows = samples.values if samples.first is None else samples.dense(size(node))
        if rows.shape[1] != size(node):
            raise node.error(f"the reader gives samples of {rows.shape[1]}, not {size(node)}")
        rows = rows.reshape(len(rows), *dims(node)).astype(self._dtype(node.name), copy=False)
        if node.axis in self.lowered.sequences:
            rows = Sequences(rows, (samples.begin,))
        self.scope.var(node.name).set(rows)

    def _dtype(self, name: str) -> np.dtype:
        return to_dtype(self.net.vars[name].dtype)

    def _feed_sparse(self, node: Node, samples: Samples) -> None:
        values, indices = samples.values, samples.indices
        if samples.first is None:  # a dense stream
            row, indices = np.nonzero(values)
            counts = bincount(row, minlength=len(values))
            values = values[row, indices]
        else:
            counts = np.diff(samples.first)
        names = Sparse.of(node.name)
        self.scope.var(names.values).set(values.astype(self._dtype(names.values), copy=False))
        self.scope.var(names.indices).set(np.asarray(indices, np.int64))
        counts = np.asarray(counts, np.int64)
        if node.axis in self.lowered.sequences:
            counts = Sequences(counts, (samples.begin,))
        self.scope.var(names.counts).set(counts)

    def _feed_positions(self, node: Node, condition: NodeValue) -> None:
        """The positions at which the condition of a `Where` node holds, sequence by sequence."""
        assert condition.offsets is not None
        first = condition.offsets[:-1]
        rows = np.flatnonzero(condition.data.reshape(-1))
        sequence = np.searchsorted(condition.offsets, rows, side="right") - 1
        offsets = offsets_of(bincount(sequence, minlength=len(first)))
        positions = (rows - first[sequence]).astype(self._dtype(node.name))
        self.scope.var(node.name).set(Sequences(positions[:, None], (offsets,)))
        self._layouts[node.axis] = offsets, packed(np.diff(offsets))

    def value(self, node: Node) -> NodeValue:
        """The value of one of the nodes that the net was made for, after a run."""
        return self._value(node, self.scope.numpy(self.lowered.values[node]))

    def gradient(self, node: Node) -> NodeValue | None:
        """The gradient of one of `extra_gradients`, after a run; None for other nodes."""
        name = self.extra_gradients.get(node)
        if name is None:
            return None
        data = self.scope.numpy(name)
        rows = rows_name(name)
        if rows in self.net.vars:
            data = whole_gradient(data, self.scope.numpy(rows), dims(node))
        return self._value(node, data)

    def _value(self, node: Node, data: np.ndarray) -> NodeValue:
        if node.axis is None:
            return NodeValue(data, None, None, node.shape)
        offsets, layout = self._layouts.get(node.axis, (None, None))
        if offsets is None and (levels := self.scope.get(self.lowered.values[node]).offsets):
            offsets = levels[0]
            layout = packed(np.diff(offsets))
        return NodeValue(data, offsets, layout, node.shape)


class CntkNet:
    """A network that runs. It owns a scope with the parameters.

    `eval` takes arrays; `forward` and `forward_backward` take minibatches, as readers give them.

    Args:
        network: validated; parameters without values get their initial ones.
        place: where it runs; the CPU by default.
        dtype: of all values; by default the network's precision.

    Attributes:
        watcher: sees values of nodes; set it before nets are bound.
    """

    watcher: Watcher | None = None

    def __init__(
        self, network: Network, place: Place | None = None, dtype: DTypeLike | None = None
    ) -> None:
        self.network = network
        own = np.float64 if network.precision == "double" else np.float32
        self.dtype = np.dtype(dtype or own)
        self.scope = Scope(place)
        self.context = OpContext(seed=0)  # random numbers of dropout and sampling
        self._bound_nets: dict[tuple[object, ...], BoundNet] = {}
        self._last: BoundNet | None = None  # its gradients are in the scope
        initialize(network)
        for node in network.nodes.values():
            if node.value is not None:
                self.scope.var(node.name).set(self._to_scope(node, node.value))

    # -- parameters ----------------------------------------------------------------------------

    def _to_scope(self, node: Node, value: ArrayLike) -> np.ndarray:
        try:
            array = np.asarray(value, self.dtype)
        except (TypeError, ValueError) as error:
            raise node.error(f"a value that is no array of numbers: {error}") from None
        if array.size == size(node) and array.shape != tuple(node.shape):
            array = array.reshape(node.shape, order="F")
        if array.shape != tuple(node.shape):
            raise node.error(f"a value of shape {array.shape} does not fit")
        return np.ascontiguousarray(array.transpose())

    def _holder(self, name: str) -> Node:
        node = self.network.find(name)
        if self.scope.find(node.name) is None or not (node.is_parameter or node.kind.precompute):
            raise VariableError(f"{node.name} ({node.operation}) has no value of its own")
        return node

    def parameters(self, *, learning: bool = True) -> list[str]:
        """Names of the parameters; `learning`: only those whose learning rate is not 0."""
        return [
            node.name
            for node in self.network.nodes.values()
            if node.is_parameter and (node.learning_rate != 0 or not learning)
        ]

    def get(self, name: str) -> np.ndarray:
        """A copy of a parameter's value in CNTK's shape [d1, ..., dk].

        Raises:
            VariableError: there is no such parameter.
        """
        return self.scope.numpy(self._holder(name).name).transpose()

    def set(self, name: str, value: ArrayLike) -> None:
        """Set a parameter, or a statistic, from an array of CNTK's shape.

        Raises:
            VariableError: there is no such parameter. ShapeError: the shape differs.
        """
        node = self.network.find(name)
        if not (node.is_parameter or node.kind.precompute):
            raise VariableError(f"{node.name} ({node.operation}) has no value of its own")
        self.scope.var(node.name).set(self._to_scope(node, value))

    def gradient(self, name: str) -> np.ndarray:
        """The gradient of a parameter after `forward_backward`, in CNTK's shape; zeros where the
        criterion does not depend on it."""
        node = self._holder(name)
        last = self._last
        grad = last.gradients.get(node.name) if last is not None else None
        if last is None or grad is None:
            return np.zeros(node.shape, self.dtype)
        array = self.scope.numpy(grad)
        rows = rows_name(grad)
        if rows in last.net.vars:
            array = whole_gradient(array, self.scope.numpy(rows), dims(node))
        return array.transpose()

    def store(self) -> None:
        """Write the values of the scope into the network's nodes, for saving."""
        for node in self.network.nodes.values():
            own = self.scope.find(node.name)
            if own is not None and (node.is_parameter or node.kind.precompute):
                node.value = np.asfortranarray(own.numpy().transpose())
            seen = self.scope.find(f"{node.name}@SEEN")
            if seen is not None and "samplesSeen" in node.attributes:
                node.attributes["samplesSeen"] = int(seen.numpy()[0])
            drawn = self.scope.find(f"{node.name}@DRAWN")
            if drawn is not None and "rngOffset" in node.attributes:
                node.attributes["rngOffset"] = int(drawn.numpy()[0])

    def save(self, path: PathLike) -> None:
        """Write the network with the values of the scope as a model file.

        Raises:
            SaveError: the file cannot be written.
        """
        self.store()
        write_model(self.network, path)

    def start_epoch(self) -> None:
        """Reset nodes that gather values over an epoch."""
        for node in self.network.nodes.values():
            count = self.scope.find(f"{node.name}@COUNT")
            if node.operation == "EpochAccumulator" and count is not None:
                count.set(np.zeros(1))

    # -- running -------------------------------------------------------------------------------

    def bound_net(
        self,
        nodes: Sequence[Node | str],
        criterion: Node | str | None = None,
        *,
        extend: Pass | None = None,
        key: object = None,
        carried: bool = False,
        extra_gradients: Sequence[Node] = (),
    ) -> BoundNet:
        """The operators that compute `nodes`, and gradients where there is a criterion.

        A net is made once for the same nodes, criterion and `key`.

        Args:
            criterion: gradients of the sum of its elements by all parameters that learn are
                computed, into the variables of `BoundNet.gradients`.
            extend: a pass over the finished op list, for updates of parameters and the like.
            key: names the pass.
            carried: whether sequences may continue from minibatch to minibatch.
            extra_gradients: further nodes, constants among them, whose gradients are computed.
        """
        wanted = [self._node(node) for node in nodes]
        target = None if criterion is None else self._node(criterion)
        if target is not None and target not in wanted:
            wanted.append(target)
        known_by = (tuple(wanted), target, key, carried, tuple(extra_gradients))
        bound = self._bound_nets.get(known_by)
        if bound is None:
            bound = self._make(wanted, target, extend, carried, extra_gradients, self.watcher)
            self._bound_nets[known_by] = bound
        return bound

    def _node(self, node: Node | str) -> Node:
        return node if isinstance(node, Node) else self.network.find(node)

    def _make(
        self,
        wanted: list[Node],
        target: Node | None,
        extend: Pass | None,
        carried: bool,
        extra_gradients: Sequence[Node] = (),
        watcher: Watcher | None = None,
        scope: Scope | None = None,
    ) -> BoundNet:
        below: list[Node] = []
        if watcher is not None:
            below = self.network.below(wanted)
            wanted = [*wanted, *watcher.nodes(below)]
            extra_gradients = [*extra_gradients, *watcher.extra_gradients(below)]
        lowered = lower(self.network, wanted, self.dtype, carried=carried)
        for name, (shape, dtype, value) in lowered.states.items():
            if self.scope.find(name) is None:
                self.scope.var(name).set(np.full(shape, value, dtype))
        net = lowered.op_list.copy()
        gradients = {}
        further = {}
        if target is not None:
            by = {node: lowered.values[node] for node in extra_gradients if node in lowered.values}
            learning = [
                var.name for var in net.vars if var.kind == PARAMETER and not var.stop_gradient
            ]
            asked = set(by.values())
            net.vars = [
                var.changed(stop_gradient=False) if var.name in asked else var for var in net.vars
            ]
            result = build_backward(
                net, targets=lowered.values[target], wrt=[*learning, *by.values()]
            )
            grads = result.gradients
            gradients = {name: grads[name] for name in learning if name in grads}
            further = {node: grads[name] for node, name in by.items() if name in grads}
            declared = {var.name for var in net.vars}
            net.vars += [var for var in result.vars if var.name not in declared]
            net.ops += result.ops
        if extend is not None:
            net = extend(net)
        computed = {*gradients.values(), *further.values()}
        live_out = {lowered.values[node] for node in wanted} | computed
        written = {name for op in net.ops for name in op.output_names()}
        live_out |= written.intersection(map(rows_name, computed))  # of sparse gradients
        for delayed in lowered.delays:
            live_out.update((lowered.values[delayed.node.inputs[0]], *delayed.before))
        # In scopes of their own, as they may feed the same inputs in another form.
        conditions = {
            node: self._make(node.inputs[:1], None, None, carried, scope=self.scope.new_scope())
            for node in lowered.conditions
        }
        return BoundNet(
            scope or self.scope,
            lowered,
            PlainNet(net, check=False),
            gradients,
            frozenset(live_out),
            conditions,
            further,
            watcher,
            frozenset(below),
        )

    def _context(self, train: bool) -> OpContext:
        return self.context.derive(train=train, live_out=None)

    def forget(self) -> None:
        """Drop all bound nets: the network's attributes have changed."""
        self._bound_nets.clear()
        self.scope.bound.clear()

    def eval(
        self, data: Mapping[str, Data], nodes: Iterable[Node | str] | Node | str = ()
    ) -> dict[str, np.ndarray | list[np.ndarray]]:
        """The values of nodes for arrays, as a test computes them: no dropout, and the running
        statistics of batch normalization.

        Args:
            data: for each input that is needed an array [rows, elements] or [rows, dk, ..., d1],
                with one sequence in each row, or a list of such arrays, one for each sequence.
                Whole numbers [rows] say which element of a sample is 1, the others 0: words of a
                vocabulary. A `Samples` is taken as it is.
            nodes: names; without any the output nodes of the network.

        Returns:
            by name an array [rows, dk, ..., d1], where CNTK's shape is [d1 x ... x dk]; a list of
            them, one for each sequence, where the data are lists.

        Raises:
            VariableError: there is no such input or node, or nothing says what the outputs are.
            ShapeError: an input is missing, or does not fit.
        """
        wanted = [nodes] if isinstance(nodes, (Node, str)) else list(nodes)
        wanted = wanted or self.network.groups["output"]
        if not wanted:
            raise VariableError("the network has no output nodes: name the nodes to evaluate")
        values = self.forward(minibatch_of(self.network, data), wanted)
        lists = in_lists(data.values())
        return {name: result_of(value, lists) for name, value in values.items()}

    def forward(
        self, minibatch: Minibatch, nodes: Iterable[Node | str], *, train: bool = False
    ) -> dict[str, NodeValue]:
        """The values of some nodes, by name."""
        targets = [self._node(node) for node in nodes]
        bound = self.bound_net(targets, carried=goes_on(minibatch))
        bound.run(minibatch, self._context(train))
        return {node.name: bound.value(node) for node in targets}

    def forward_backward(
        self,
        minibatch: Minibatch,
        criterion: Node | str,
        evaluations: Iterable[Node | str] = (),
        *,
        train: bool = True,
    ) -> dict[str, float]:
        """Criterion and evaluation nodes, summed over the samples; gradients stay in the scope."""
        target = self._node(criterion)
        nodes = [target, *(self._node(node) for node in evaluations)]
        bound = self.bound_net(nodes, target, carried=goes_on(minibatch))
        bound.run(minibatch, self._context(train))
        self._last = bound
        return {node.name: bound.value(node).total for node in nodes}


__all__ = ["BoundNet", "CntkNet", "Watcher", "goes_on"]
