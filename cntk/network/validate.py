"""Validation of a network: shapes, dynamic axes and unknown dimensions of parameters.

Passes go over the nodes in evaluation order until nothing changes; loops need more than one, since
a delay's input is not known in the first. A last pass checks. Source: ComputationNetwork::
CompileNetwork and ValidateNetwork.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...framework.errors import OpscopeError, ShapeError, VariableError
from ..text import located
from . import analysis, rules
from .describe import loop_lines, prototype, root_lines
from .given import has_own_shape, load_given
from .node import DEFAULT_AXIS, DynamicAxis, Node

if TYPE_CHECKING:
    from .network import Network

Log = Callable[[str], None]
_MOST_ELEMENTS = 1 << 62
_GIVEN_SHAPE = ("LearnableParameter", "InputValue", "SparseInputValue", "PastValue", "FutureValue")


class AxisNames:
    """Names of dynamic axes, numbered from the second of a name on; one for all networks that a
    process builds gives the names that CNTK prints."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        number = self._used[name]
        self._used[name] += 1
        return f"{name}{number}" if number else name


def _set_axes(network: Network, names: AxisNames) -> None:
    """Axes of inputs; all other nodes get theirs while rules run."""
    default = DynamicAxis(names.unique(DEFAULT_AXIS))
    made: dict[int, DynamicAxis] = {}
    for node in network.nodes.values():
        node.axis = None
        if node.operation == "DynamicAxis":
            made[id(node)] = node.axis = DynamicAxis(names.unique(node.name), node)
    for node in network.nodes.values():
        if not node.is_input:
            continue
        wanted = node.attributes["dynamicAxis"]
        if wanted == "" or wanted is None:
            node.axis = default
            continue
        try:
            axis = wanted if isinstance(wanted, Node) else network.find(str(wanted))
        except VariableError as error:
            raise located(
                VariableError, f"{node.name}: dynamicAxis: {error}", node.location
            ) from None
        if id(axis) not in made:
            raise node.error(
                f"dynamicAxis must be a DynamicAxis node, not {axis.name} ({axis.operation})"
            )
        node.axis = made[id(axis)]


def _load_shape(node: Node, dtype: np.dtype) -> None:
    """Load a parameter whose values tell dimensions that it lacks."""
    if node.value is None and not rules.size(node.attributes["shape"]) and has_own_shape(node):
        load_given(node, dtype)


def _start(node: Node) -> None:
    given = node.attributes["shape"] if node.operation in _GIVEN_SHAPE else ()
    if node.is_parameter and node.value is not None:
        given = node.value.shape
    elif node.is_parameter and rules.size(node.shape):
        given = node.shape  # inferred before
    if node.operation == "DynamicAxis":
        given = (1, 1)
    node.shape = given
    node.needs_gradient = node.is_parameter and node.learning_rate != 0


def _state(node: Node) -> tuple:
    shapes = [(i.shape, i.axis is not None) for i in node.inputs if i is not None]
    return node.shape, node.axis, node.needs_gradient, shapes


class _Validation:
    def __init__(self, order: list[Node], names: AxisNames, log: Log | None):
        self.order = order
        self.names = names
        self.log = log
        self.visited: set[int] = set()

    def _apply(self, node: Node, final: bool) -> bool:
        """Run the rule of a node; whether something changed by it."""
        before = _state(node)
        known = node.axis
        rules.check_inputs(node, final)
        node.kind.rule(node, final)
        if node.axis is not None and node.axis is not known and node.axis.origin is node:
            node.axis.name = self.names.unique(node.axis.name)
        if any(child.needs_gradient for child in node.inputs):
            node.needs_gradient = True
        return before != _state(node)

    def _apply_logged(self, node: Node, first: bool, final: bool) -> bool:
        shown = prototype(node)
        try:
            changed = self._apply(node, final)
        except OpscopeError:
            self.log(f"Validating --> {shown} FAILED")
            raise
        now = prototype(node)
        if first or changed or shown != now:
            self.log(f"Validating --> {now}")
        return changed

    def run(self, first: bool, final: bool) -> int:
        """One pass; returns how many nodes need another."""
        left = 0
        for node in self.order:
            seen = [id(child) in self.visited for child in node.inputs]
            for child in node.inputs:
                if child is not None and child.operation == "DynamicAxis":
                    raise node.error(f"{child.name} can only be the dynamicAxis of an input")
            if node.inputs and not any(seen):
                left += 1
                continue
            changed = (
                self._apply_logged(node, first, final) if self.log else self._apply(node, final)
            )
            self.visited.add(id(node))
            if final and changed:
                raise node.error("its shape does not settle; a loop may need a known dimension")
            if node.inputs and (changed or not all(seen)):
                left += 1
        return left


def validate(network: Network, log: Log | None = None, names: AxisNames | None = None) -> None:
    """Validate all nodes of a network. Sets `order` and `loops` of the network, and shape, axis
    and needs_gradient of its nodes. `log` gets the lines that CNTK prints meanwhile.

    Raises:
        ShapeError, CycleError, VariableError: with the place of the node that is wrong.
    """
    names = names or AxisNames()
    log, traced = log or (lambda line: None), log
    nodes = network.sorted_nodes()
    for node in nodes:
        for number, child in enumerate(node.inputs):
            if child is None:
                raise node.error(f"input {number} is not connected")
            if network.nodes.get(child.name) is not child:
                raise node.error(f"input {number}, {child.name}, is not in the network")
        network.check_count(node)
    groups = [network.groups[g] for g in ("criterion", "evaluation", "output")]
    network.roots = analysis.roots(nodes, groups)
    root_lines(network.roots, log)
    network.loops = []
    _set_axes(network, names)
    dtype = np.dtype(np.float64 if network.precision == "double" else np.float32)
    for node in nodes:
        if node.is_parameter:
            _load_shape(node, dtype)
        _start(node)
    reached = {id(node) for node in analysis.depth_first(network.roots)}
    starts = network.roots + [n for n in nodes if id(n) not in reached]  # loops that nobody reads
    network.loops = analysis.find_loops(starts)
    loop_lines(network.loops, log)
    network.order = analysis.evaluation_order(starts, network.loops)
    run = _Validation(network.order, names, traced)
    number, left = 1, len(network.order)
    while left:
        log("")
        log(f"Validating network. {left} nodes to process in pass {number}.")
        log("")
        if number > 2 * len(network.order) + 2:
            raise ShapeError("shapes do not settle")
        left = run.run(number == 1, False)
        number += 1
    log("")
    log("Validating network, final pass.")
    log("")
    run.run(number == 1, True)
    for node in network.order:
        elements = rules.size(node.shape)
        if elements == 0:
            raise node.error("the value has no elements")
        if elements > _MOST_ELEMENTS:
            raise node.error(f"the value has {elements} elements")
        if node.kind.precompute and node.value is not None and node.value.size == elements:
            node.value = node.value.reshape(node.shape, order="F")  # files hold it as a matrix
    log("")
    log("")
