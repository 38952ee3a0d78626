"""The walk over a network of CNTK, in which an nnet3 network grows.

Each operation has a rule in `RULES`, which says what descriptor or component of nnet3 its value is.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ...cntk.network.network import Network
from ...cntk.network.nodes.analysis import depth_first
from ...cntk.network.nodes.node import Node
from ...cntk.readers.base.pack import Minibatch
from ...cntk.run.runtime import CntkNet
from ...framework.base.errors import UnknownOperatorError, VariableError
from ...nnet3.network.nnet import Nnet
from .assembly import Assembly, Value, make_component

_IVECTOR = "ivector"  # the input that Kaldi's programs give one frame of for all
_FRAME = re.compile(
    r"\.[mp]\d+(?=\.|\Z)"
)  # what `from_nnet3` adds to names of nodes at other frames

Context = Mapping[str, tuple[int, int]]
Rule: TypeAlias = "Callable[[Conversion, Node], Value]"

RULES: dict[str, Rule] = {}
"""The value of a node of an operation, once the values of its inputs are known."""

ABSORBS: dict[str, Callable[[Conversion, Node], tuple[Node, ...]]] = {}
"""The nodes that go into the same component as a node, if nothing else reads them; the nearest is
the first."""


def converts(*operations: str) -> Callable[[Rule], Rule]:
    """Decorator: the function is the rule of these operations."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(operations, rule))
        return rule

    return register


def refuse(node: Node, why: str) -> NoReturn:
    """Say that a node cannot be converted, and where it stands."""
    raise node.error(f"cannot become nnet3: {why}", UnknownOperatorError)


def size(node: Node) -> int:
    """Elements of a sample, or of a value without samples."""
    return math.prod(node.shape)


def _part_name(node: Node, part: str) -> str:
    return _FRAME.sub("", node.name) + (f".{part}" if part else "")


class Conversion:
    """One network on its way: an nnet3 network grows as values are found for its nodes.

    Attributes:
        assembly: the nnet3 network.
        values: of the nodes that were reached.
        fixed: arrays of the nodes that depend on no data, each of the node's shape.
        absorbed: for a node those that are part of its component.
    """

    def __init__(self, network: Network, context: Context) -> None:
        self.network = network
        self.context = {network.find(name): frames for name, frames in context.items()}
        self.assembly = Assembly()
        self.values: dict[Node, Value] = {}
        self.fixed: dict[Node, np.ndarray] = {}
        self.absorbed: dict[Node, tuple[Node, ...]] = {}

    def nnet(self, roots: Sequence[Node]) -> Nnet:
        """The network whose outputs are `roots`."""
        order = self._data_nodes(roots)
        inside = set(order)
        self.fixed = self.constants([c for n in order for c in n.inputs if c not in inside])
        readers = Counter(c for n in order for c in n.inputs) + Counter(roots)
        for node in order:
            parts = ABSORBS[node.operation](self, node) if node.operation in ABSORBS else ()
            if parts and all(readers[part] == 1 for part in parts):
                self.absorbed[node] = parts
        inputs, outputs = self._names(order, roots)
        without = {part for parts in self.absorbed.values() for part in parts}
        for node in order:
            if node.is_input:
                self.values[node] = self._input(node, inputs[node])
            elif node in without:
                continue
            elif node.operation not in RULES:
                refuse(node, "there is nothing in nnet3 that computes it")
            else:
                self.values[node] = RULES[node.operation](self, node)
        return self.assembly.network([(outputs[node], self.values[node]) for node in roots])

    def _data_nodes(self, roots: Sequence[Node]) -> list[Node]:
        """The nodes from the inputs to the roots, each after its own inputs."""
        for root in roots:
            if root.axis is None:
                refuse(root, "it is no sequence of samples")
        needed, waiting = set(roots), list(roots)
        while waiting:
            new = {c for c in waiting.pop().inputs if c.axis is not None} - needed
            needed |= new
            waiting += new
        for loop in self.network.loops:
            for node in loop.nodes:
                if node in needed and node.delay:
                    refuse(node, "it closes a loop, and only feed-forward networks are converted")
        return [node for node in depth_first(roots) if node in needed]

    def constants(self, nodes: Sequence[Node]) -> dict[Node, np.ndarray]:
        """Values of nodes that depend on no data, each of the node's shape."""
        seen, waiting = set(nodes), list(nodes)
        while waiting:
            node = waiting.pop()
            if node.axis is not None:
                refuse(node, "a value for the whole minibatch is computed from it")
            if (node.is_parameter or node.kind.precompute) and node.value is None:
                raise node.error("it has no value", VariableError)
            new = set() if node.kind.precompute else set(node.inputs) - seen
            seen |= new
            waiting += new
        wanted = list(dict.fromkeys(nodes))
        outputs = CntkNet(self.network).forward(Minibatch(), wanted)
        return {node: np.asarray(outputs[node.name].data).transpose() for node in wanted}

    def _names(
        self, order: Sequence[Node], roots: Sequence[Node]
    ) -> tuple[dict[Node, str], dict[Node, str]]:
        """Names of input and of output nodes: the main ones as Kaldi's programs want them."""
        data = [node for node in order if node.is_input]
        for node in self.context:
            if node not in data:
                known = ", ".join(n.name for n in data)
                raise VariableError(f"{node.name} is no input of the outputs (these are: {known})")
        main = data[0] if len(data) == 1 else None
        main = next((n for n in data if n.name.lower() == "features"), main)
        self.assembly.reserve("input", "output")
        inputs = {n: "input" if n is main else self.assembly.name(n.name) for n in data}
        outputs = {n: self.assembly.name(n.name) for n in roots[1:]}
        return inputs, {roots[0]: "output", **outputs}

    def _input(self, node: Node, name: str) -> Value:
        left, right = self.context.get(node, (0, 0))
        frames = left + 1 + right
        if min(left, right) < 0 or size(node) % frames:
            raise node.error(f"its {size(node)} elements are no window of {left} + 1 + {right}")
        fixed = name == _IVECTOR and frames == 1
        return self.assembly.input(name, size(node) // frames, range(-left, right + 1), fixed)

    def component(
        self,
        node: Node,
        key: tuple[Any, ...],
        value: Value,
        type: str,
        config: str,
        part: str = "",
        **values: Any,
    ) -> Value:
        """A component named after a node, and after the `part` of it that it is. The same key, type
        and config stand for the same component; an empty key for one of the node's own."""
        name = _part_name(node, part)
        make = partial(make_component, type, config, **values)
        owner = (type, config, *key)
        return self.assembly.component(name, owner, value, make, shared=bool(key))

    def permute(self, node: Node, part: str, value: Value, order: Sequence[int]) -> Value:
        """Columns in another order; see `Assembly.permute`."""
        return self.assembly.permute(_part_name(node, part), value, order)

    def spread(self, child: Node, node: Node) -> np.ndarray:
        """A constant as `node`, which computes element by element, sees it: a row of columns."""
        if child not in self.fixed:
            refuse(node, f"its parameter {child.name} varies from sample to sample")
        array = self.fixed[child]
        array = array.reshape(array.shape + (1,) * (len(node.shape) - array.ndim))
        return np.broadcast_to(array, node.shape).reshape(-1, order="F").astype(np.float32)

    def whole(self, child: Node, node: Node) -> Value:
        """The value of a child that has as many elements as `node`."""
        if child in self.fixed:
            refuse(node, f"its data {child.name} are constant")
        if size(child) != size(node):
            refuse(node, f"the samples of {child.name} are repeated to fill its shape")
        return self.values[child]
