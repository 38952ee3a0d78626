"""All problems of the lines of a network at once; `Nnet.from_configs` stops at the first.

A line that is wrong still has the name of its node or component, so that the lines which read it
are not called wrong as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, near_names, nearest, one_list
from ...framework.base.files.atomic import PathLike
from ...framework.base.untrusted.values import Fills
from ..components import Component, new_component
from ..language.config import ConfigLine, is_valid_name, numbered_lines, read_config_text
from ..language.nodes import (
    COMPONENT,
    DESCRIPTOR,
    DIM_RANGE,
    INPUT,
    KEYS,
    WORDS,
    NetworkNode,
    check_word,
    fill_node,
    input_name,
    unused_parts,
    warnings_to,
)
from .model_check import ERROR, WARNING, Problem, unusual_parts
from .nnet import Nnet

_KINDS = {
    "component-node": COMPONENT,
    "input-node": INPUT,
    "output-node": DESCRIPTOR,
    "dim-range-node": DIM_RANGE,
}


@one_list()
def config_problems(path: PathLike) -> list[Problem]:
    """What is wrong, and what is unusual, in the config file `path`, in the order of its lines.

    Raises:
        FormatError: the file cannot be read, or is no UTF-8 text.
    """
    name = os.fspath(path)
    check = NetworkCheck()
    for place, text in numbered_lines(read_config_text(path), name):
        check.add(text, place)
    return check.problems(name, lambda: Nnet.from_configs([name], 0))


class NetworkCheck:
    """The lines of a network, as far as they can be understood.

    Attributes:
        all_components: whether there are no components but those that were added.
    """

    def __init__(self) -> None:
        self.all_components = True
        self._problems: list[tuple[int, Problem]] = []  # with the number of the line
        self._lines: list[tuple[int, ConfigLine]] = []  # of nodes
        self._count = 0
        self._fills = Fills()
        self._declared: dict[str, str] = {}  # component NAME, or a node -> where
        self._components: dict[str, Component] = {}
        self._nodes: dict[str, NetworkNode] = {}
        self._broken: set[str] = set()  # nodes, whose dimensions are not known

    def add_component(self, name: str, component: Component | None, place: str) -> None:
        """Take a component that a file holds; None for one that cannot be read."""
        self._declared[f"component {name}"] = place
        if component is not None:
            self._components[name] = component

    def add(self, text: str, place: str) -> None:
        """Take the next line."""
        self._count += 1
        try:
            line = ConfigLine(text, place)
        except FormatError as error:
            self._error(self._count, error)
            line = self._guessed(text, place)
            if line is None:
                return
        word = line.first_token
        try:
            check_word(line)
        except FormatError as error:
            self._error(self._count, error)
            word = _meant(word)
        name = line.get("name")
        if name is None:
            self._error(self._count, line.error("name= is missing" + nearest("name", line.keys())))
            return
        if not is_valid_name(name):
            self._error(self._count, line.error(f"{name!r} is not a valid name"))
        declared = f"component {name}" if word == "component" else name
        if declared in self._declared:
            before = self._declared[declared]
            self._error(
                self._count, line.error(f"{declared!r} is defined twice, first at {before}")
            )
            return
        self._declared[declared] = place
        if word == "component":
            self._component(name, line)
        elif word in _KINDS:
            self._lines.append((self._count, line))
            self._nodes[name] = NetworkNode(name, _KINDS[word])

    def _guessed(self, text: str, place: str) -> ConfigLine | None:
        """The first word and the name of a line that is none."""
        words = text.split()
        named = next((word for word in words if word.startswith("name=")), "")
        if len(words) > 1 and is_valid_name(words[0]) and len(named) > len("name="):
            return ConfigLine(f"{words[0]} {named}", place)
        return None

    def _error(self, number: int, error: OpscopeError | str) -> None:
        self._problems.append((number, Problem(ERROR, str(error))))

    def _component(self, name: str, line: ConfigLine) -> None:
        try:
            type = line.require("type")
            try:
                component = new_component(type)
            except FormatError as error:
                raise line.error(str(error)) from error
            with self._fills:
                component.init_from_config(line, np.random.default_rng(0))
            self._components[name] = component
        except OpscopeError as error:
            self._error(self._count, error)

    def of_lines(self) -> list[Problem]:
        """What is wrong with lines by themselves."""
        return [problem for _, problem in self._problems]

    def output_dim(self, name: str) -> int:
        """Columns of an output node; -1 where they are not known."""
        node = self._nodes.get(name)
        dims = self._dims()
        if node is None or node.descriptor is None:
            return -1
        if not all(read in dims for read in node.descriptor.node_names()):
            return -1
        try:
            return node.descriptor.dim(dims)
        except OpscopeError:
            return -1

    def problems(self, source: str, build: Callable[[], Nnet] | None) -> list[Problem]:
        """All problems, now that all lines are known.

        Args:
            source: what the lines are of.
            build: makes the network, where no line is wrong; None: it cannot be made.
        """
        readable = {node.name for node in self._nodes.values() if node.kind != DESCRIPTOR}
        feeding = {
            input_name(n.name): NetworkNode(input_name(n.name), DESCRIPTOR)
            for n in self._nodes.values()
            if n.kind == COMPONENT
        }
        for number, line in self._lines:
            self._fill(number, line, feeding, readable)
        dims = self._dims()
        for number, line in self._lines:
            node = self._nodes[line.require("name")]
            problem = self._mismatch(node, feeding.get(input_name(node.name)), dims)
            if problem:
                self._error(number, line.error(problem))
        order = [n for node in self._nodes.values() for n in self._with_feeding(node, feeding)]
        end = self._count + 1
        kinds = {node.kind for node in self._nodes.values()}
        for kind, wanted in (("input", INPUT), ("output", DESCRIPTOR)):
            if wanted not in kinds:
                self._error(end, f"{source}: a network needs an {kind}-node, and there is none")
        components = [key.removeprefix("component ") for key in self._declared if " " in key]
        if not self._broken and self.all_components and DESCRIPTOR in kinds:
            for text in unused_parts(order, components):
                self._problems.append((end, Problem(WARNING, f"{source}: {text}")))
        if build and not any(problem.severity == ERROR for _, problem in self._problems):
            try:
                with warnings_to(lambda line: None):  # reported above
                    lines = unusual_parts(build())
            except OpscopeError as error:
                self._error(end, f"{source}: {error}")
                lines = []
            for text in lines:
                self._problems.append((end, Problem(WARNING, f"{source}: {text}")))
        return [problem for _, problem in sorted(self._problems, key=lambda item: item[0])]

    def _with_feeding(
        self, node: NetworkNode, feeding: dict[str, NetworkNode]
    ) -> Iterable[NetworkNode]:
        if node.kind == COMPONENT:
            yield feeding[input_name(node.name)]
        yield node

    def _fill(
        self, number: int, line: ConfigLine, feeding: dict[str, NetworkNode], readable: set[str]
    ) -> None:
        """Read the rest of a node's line."""
        name = line.require("name")
        if line.first_token not in WORDS or len(line.keys()) == 1:
            self._broken.add(name)  # reported before
            return
        try:
            fill_node(line, {**feeding, **self._nodes}, readable)
        except OpscopeError as error:
            self._error(number, error)
            self._broken.add(name)
        if self._nodes[name].component:
            self._known_component(number, line, self._nodes[name].component)
        if name in self._broken:
            return
        try:
            line.check_unused(KEYS[line.first_token])
        except FormatError as error:
            self._error(number, error)

    def _known_component(self, number: int, line: ConfigLine, wanted: str) -> None:
        if self.all_components and f"component {wanted}" not in self._declared:
            names = (key.removeprefix("component ") for key in self._declared if " " in key)
            problem = f"there is no component {wanted!r}{nearest(wanted, names)}"
            self._error(number, line.error(problem))

    def _dims(self) -> dict[str, int]:
        """Columns of the nodes that a descriptor can read, as far as they are known."""
        dims: dict[str, int] = {}
        for node in self._nodes.values():
            if node.kind == COMPONENT and node.component in self._components:
                dims[node.name] = self._components[node.component].output_dim
            elif node.kind in (INPUT, DIM_RANGE) and node.dim > 0:
                dims[node.name] = node.dim
        return dims

    def _mismatch(
        self, node: NetworkNode, feeding: NetworkNode | None, dims: dict[str, int]
    ) -> str:
        """What is wrong with the dimensions that a node reads; empty where nothing is known."""
        if node.kind == DIM_RANGE:
            width = dims.get(node.source)
            end = node.dim_offset + node.dim
            if width is None or end <= width:
                return ""
            return f"takes columns {node.dim_offset} to {end} of {node.source!r}, which has {width}"
        reader = feeding if node.kind == COMPONENT else node
        if reader is None or reader.descriptor is None:
            return ""
        if not all(name in dims for name in reader.descriptor.node_names()):
            return ""
        try:
            dim = reader.descriptor.dim(dims)
        except OpscopeError as error:
            return str(error)
        component = self._components.get(node.component)
        if node.kind != COMPONENT or component is None or component.input_dim == dim:
            return ""
        return (
            f"reads {reader.descriptor} of dimension {dim}, but its component"
            f" {node.component!r} ({component.type}) wants {component.input_dim}"
        )


def _meant(word: str) -> str:
    """The first word of a line that was meant by `word`; empty where none is near."""
    near = near_names(word, ("component", *WORDS))
    return near[0] if near else ""
