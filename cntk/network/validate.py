"""Validation of a network: shapes, dynamic axes and unknown dimensions of parameters.

Passes go over the nodes in evaluation order until nothing changes; loops need more than one, since
a delay's input is not known in the first. A last pass checks. Source: ComputationNetwork::
CompileNetwork and ValidateNetwork.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...framework.base.errors import (
    AttributeTypeError,
    OpscopeError,
    ShapeError,
    VariableError,
    nearest,
)
from .describe import loop_lines, prototype, root_lines
from .graph import GROUPS, NodeGraph, group_of_tag
from .nodes import analysis, rules
from .nodes.initial_values import has_own_shape, load_initial_value
from .nodes.node import DEFAULT_AXIS, DynamicAxis, Node

Log = Callable[[str], None]
_MOST_ELEMENTS = 1 << 62
_MOST_ERRORS = 30  # for each of them everything is validated once more
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


Found = Iterator[tuple[Node, OpscopeError]]  # what is wrong with which node


def _set_axes(network: NodeGraph, names: AxisNames) -> Found:
    """Axes of inputs; all other nodes get theirs while rules run."""
    default = DynamicAxis(names.unique(DEFAULT_AXIS))
    axes: dict[int, DynamicAxis] = {}
    for node in network.nodes.values():
        node.axis = None
        if node.operation == "DynamicAxis":
            axes[id(node)] = node.axis = DynamicAxis(names.unique(node.name), node)
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
            yield node, node.error(f"dynamicAxis: {error}", VariableError)
            continue
        node.axis = axes.get(id(axis))
        if node.axis is None:
            what = f"{axis.name} ({axis.operation})"
            yield node, node.error(f"dynamicAxis must be a DynamicAxis node, not {what}")


def _check_inputs(network: NodeGraph, nodes: Sequence[Node]) -> Found:
    """Tags that name no group; inputs that are missing, too many, foreign, or an axis."""
    for node in nodes:
        tag = next((tag for tag in node.tags if tag and group_of_tag(tag) is None), None)
        if tag is not None:
            message = f"invalid group tag {tag!r}{nearest(tag, GROUPS)}, one of {', '.join(GROUPS)}"
            yield node, node.error(message, AttributeTypeError)
            continue
        try:
            network.check_count(node)
        except OpscopeError as error:
            yield node, error
            continue
        for number, child in enumerate(node.inputs):
            if child is None:
                yield node, node.error(f"input {number} is not connected")
            elif network.nodes.get(child.name) is not child:
                yield node, node.error(f"input {number}, {child.name}, is not in the network")
            elif child.operation == "DynamicAxis":
                yield node, node.error(f"{child.name} can only be the dynamicAxis of an input")
            else:
                continue
            break


def _start(node: Node, dtype: np.dtype) -> None:
    """Set the shape of a node before the first pass: the given one, or one inferred earlier. A
    parameter of unknown shape is loaded if its file or literal has the shape."""
    given = node.attributes["shape"] if node.operation in _GIVEN_SHAPE else ()
    if node.is_parameter:
        if node.value is None and not rules.size(given) and has_own_shape(node):
            load_initial_value(node, dtype)
        if node.value is not None:
            given = node.value.shape
        elif rules.size(node.shape):
            given = node.shape
    node.shape = (1, 1) if node.operation == "DynamicAxis" else given
    node.needs_gradient = node.is_parameter and node.learning_rate != 0


def _state(node: Node) -> tuple:
    shapes = [(i.shape, i.axis is not None) for i in node.inputs if i is not None]
    return node.shape, node.axis, node.needs_gradient, shapes


class _Failure(Exception):
    """An error, and the node it is about."""

    def __init__(self, node: Node, error: OpscopeError):
        self.node = node
        self.error = error


class _Passes:
    """Runs the rules of nodes until nothing changes."""

    def __init__(self, order: Sequence[Node], names: AxisNames, log: Log | None):
        self.order = order
        self.names = names
        self.log = log
        self.visited: set[int] = set()

    def run(self) -> None:
        """Run all passes, then check sizes.

        Raises:
            _Failure: for the first node that is wrong.
        """
        log = self.log or (lambda line: None)
        number = 1
        left = len(self.order)
        while left:
            for line in ("", f"Validating network. {left} nodes to process in pass {number}.", ""):
                log(line)
            if number > 2 * len(self.order) + 2:
                raise _Failure(self.order[-1], ShapeError("shapes do not settle"))
            left = self._pass(number == 1, False)
            number += 1
        for line in ("", "Validating network, final pass.", ""):
            log(line)
        self._pass(number == 1, True)
        for node in self.order:
            self._check_value(node)
        log("")
        log("")

    def _pass(self, first: bool, final: bool) -> int:
        """One pass; returns how many nodes need another."""
        left = 0
        for node in self.order:
            seen = [id(child) in self.visited for child in node.inputs]
            if node.inputs and not any(seen):
                left += 1
                continue
            try:
                if self.log is None:
                    changed = self._apply(node, final)
                else:
                    changed = self._apply_logged(self.log, node, first, final)
                if final and changed:
                    raise node.error("its shape does not settle; a loop may need a known dimension")
            except OpscopeError as error:
                raise _Failure(node, error) from None
            self.visited.add(id(node))
            if node.inputs and (changed or not all(seen)):
                left += 1
        return left

    def _apply(self, node: Node, final: bool) -> bool:
        """Run the rule of a node; whether something changed by it."""
        before = _state(node)
        known = node.axis
        rules.check_inputs(node, final)
        node.run("the shape rule", node.kind.rule, node, final)
        if node.axis is not None and node.axis is not known and node.axis.origin is node:
            node.axis.name = self.names.unique(node.axis.name)
        if any(child.needs_gradient for child in node.inputs):
            node.needs_gradient = True
        return before != _state(node)

    def _apply_logged(self, log: Log, node: Node, first: bool, final: bool) -> bool:
        shown = prototype(node)
        try:
            changed = self._apply(node, final)
        except OpscopeError:
            log(f"Validating --> {shown} FAILED")
            raise
        now = prototype(node)
        if first or changed or shown != now:
            log(f"Validating --> {now}")
        return changed

    @staticmethod
    def _check_value(node: Node) -> None:
        rank = len(node.shape or ())
        if rank > rules.HIGHEST_RANK:
            message = f"the value has {rank} axes; tensors have at most {rules.HIGHEST_RANK}"
            raise _Failure(node, node.error(message))
        elements = rules.size(node.shape)
        if not 0 < elements <= _MOST_ELEMENTS:
            raise _Failure(node, node.error(f"the value has {elements or 'no'} elements"))
        if node.kind.precompute and node.value is not None and node.value.size == elements:
            node.value = node.value.reshape(node.shape, order="F")  # files hold it as a matrix


class _Validation:
    """Validation of one network: stops at the first error, or takes wrong nodes out and goes on."""

    def __init__(self, network: NodeGraph, log: Log | None, names: AxisNames | None, every: bool):
        self.network = network
        self.log = log
        self.names = names or AxisNames()
        self.every = every
        self.errors: list[OpscopeError] = []
        self.failed: set[int] = set()
        precision = np.float64 if network.precision == "double" else np.float32
        self.dtype = np.dtype(precision)

    def _note(self, nodes: Sequence[Node], error: OpscopeError) -> None:
        """An error about nodes; nodes computed from them cannot be validated either."""
        if not self.every:
            vars(error)["network"] = self.network  # to find the other errors from it, too
            raise error
        self.errors.append(error)
        self.failed |= analysis.dependents(self.network.nodes.values(), nodes)

    def run(self) -> None:
        network = self.network
        nodes = network.sorted_nodes()
        for node, error in _check_inputs(network, nodes):
            self._note([node], error)
        groups = [network.groups[g] for g in ("criterion", "evaluation", "output")]
        network.roots = analysis.roots(nodes, groups)
        if self.log is not None:
            root_lines(network.roots, self.log)
        for node, error in _set_axes(network, self.names):
            self._note([node], error)
        reached = {id(node) for node in analysis.depth_first(network.roots)}
        # Loops that no node reads are below no root.
        starts = network.roots + [node for node in nodes if id(node) not in reached]
        network.loops, wrong = analysis.find_loops(starts)
        for part, error in wrong:
            self._note(part, error)
        if self.log is not None:
            loop_lines(network.loops, self.log)
        network.order = analysis.evaluation_order(starts, network.loops)
        while not self._passes():
            pass

    def _passes(self) -> bool:
        """Whether all passes went through."""
        order = [node for node in self.network.order if id(node) not in self.failed]
        if len(self.errors) >= _MOST_ERRORS:
            return True
        try:
            for node in order:
                self._start(node)
            _Passes(order, self.names, self.log).run()
        except _Failure as failure:
            self._note([failure.node], failure.error)
            return False
        return True

    def _start(self, node: Node) -> None:
        try:
            _start(node, self.dtype)
        except OpscopeError as error:
            raise _Failure(node, error) from None


def validate(network: NodeGraph, log: Log | None = None, names: AxisNames | None = None) -> None:
    """Validate all nodes of a network. Sets `order` and `loops` of the network, and shape, axis
    and needs_gradient of its nodes. `log` gets the lines that CNTK prints meanwhile.

    Raises:
        ShapeError, CycleError, VariableError, SlotError: the first error, with the place of the
            node that is wrong.
    """
    _Validation(network, log, names, every=False).run()


def problems(network: NodeGraph) -> list[OpscopeError]:
    """All errors of a network; errors that follow from others are left out.

    Nodes that do not depend on wrong ones are validated as `validate` does it.
    """
    validation = _Validation(network, None, None, every=True)
    validation.run()
    return validation.errors
