"""A network: components by name, and nodes that connect them. Kaldi's class Nnet.

    nnet = Nnet.read("final.raw")
    print(nnet.info())
    nnet.write("copy.raw")

Source: Kaldi's `nnet3/nnet-nnet.cc`.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, ShapeError, check_kind, nearest
from ...framework.base.files.atomic import PathLike
from ...framework.base.untrusted.values import Fills
from ...framework.ir.op_list import OpList
from ...kaldi.files.kaldi_io import Reader, Writer
from ..components import Component, new_component
from ..components.base.initial import generator_of
from ..components.base.summary import singular_values
from ..draw.shown import ShownNnet
from ..graph.context import simple_context
from ..graph.topology import Topology, component_facts
from ..graph.topology_node import TopologyNode
from ..language.config import ConfigLine, read_config_lines, read_keys, split_lines
from ..language.nodes import (
    COMPONENT,
    DESCRIPTOR,
    DIM_RANGE,
    INPUT,
    LINES,
    NetworkNode,
    drop_replaced,
    input_name,
    lines_of,
    nodes_from_lines,
    outputs_of,
    warn_of_unused_parts,
)
from .dialect import arrays, from_desc, to_desc
from .model_file import read_model_file

if TYPE_CHECKING:
    from ...framework.ir.desc import NetDesc

_MOST_COMPONENTS = 100000  # as many Kaldi reads at most
_node_facts = attrgetter(  # the facts of a node that a topology depends on
    "name", "kind", "dim", "descriptor", "component", "source", "dim_offset"
)


class Nnet(ShownNnet):
    """A network.

    Attributes:
        nodes: in order; the order counts for the compiled computation.
        components: by name, in the order in which files list them.
    """

    nodes: list[NetworkNode]
    components: dict[str, Component]

    def __init__(self) -> None:
        self.nodes = []
        self.components = {}
        self._as_read: tuple[str, list[str]] | None = None  # text of the nodes, its lines as ours
        self._topology: tuple[list[Any], Topology] | None = None  # its facts, and it

    def __repr__(self) -> str:
        return (
            f"<Nnet: {len(self.nodes)} nodes, {len(self.components)} components,"
            f" {self.num_parameters} parameters>"
        )

    # Building

    @classmethod
    def from_configs(
        cls, paths: PathLike | Iterable[PathLike], rng: np.random.Generator | int | None = None
    ) -> Nnet:
        """The network that config files describe, read one after the other.

        Args:
            paths: of the files, or of the one file.
            rng: where random parameters come from: a generator, or its seed.

        Raises:
            FormatError: a file cannot be read or has a line that is wrong.
            ShapeError: dimensions do not fit.
        """
        nnet = cls()
        rng = generator_of(rng)
        check_kind(paths, str | os.PathLike | Iterable, "the paths of configs")
        listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        if not listed:
            raise FormatError("the list of configs is empty")
        for path in listed:
            check_kind(path, str | os.PathLike, "the path of a config")
            nnet._add_lines(read_config_lines(path), rng)
        warn_of_unused_parts(nnet.nodes, nnet.components)
        return nnet

    @classmethod
    def from_config_text(cls, text: str, rng: np.random.Generator | int | None = None) -> Nnet:
        """The network that one config describes; see `from_configs`."""
        if not isinstance(text, str):
            raise FormatError(f"the text of a config is a str, not a {type(text).__name__}")
        nnet = cls()
        nnet.add_config(split_lines(text), generator_of(rng))
        return nnet

    def add_config(self, lines: Sequence[ConfigLine], rng: np.random.Generator) -> None:
        """Add the nodes and components of config lines.

        A node or component replaces an older one of its name; a replaced node moves to the end.
        After an error the network is as before. Parts that no output needs are warned of.

        Raises:
            FormatError: a line is wrong.
            ShapeError: dimensions do not fit.
        """
        self._add_lines(lines, rng)
        warn_of_unused_parts(self.nodes, self.components)

    def _add_lines(self, lines: Sequence[ConfigLine], rng: np.random.Generator) -> None:
        merged = drop_replaced(split_lines("\n".join(self.config_lines())), lines)
        components = dict(self.components)
        with Fills():
            for line in merged:
                if line.first_token == "component":
                    o = read_keys(line, LINES["component"].keys)
                    try:
                        component = new_component(o.type)
                    except FormatError as error:
                        raise line.error(str(error)) from error
                    component.init_from_config(line, rng)
                    components[o.name] = component
        self._replace(nodes_from_lines(merged), components)

    def _replace(self, nodes: list[NetworkNode], components: dict[str, Component]) -> None:
        """Take nodes and components, if they go together."""
        candidate = Nnet()
        candidate.nodes = nodes
        candidate.components = components
        candidate.check()
        self.nodes = nodes
        self.components = components

    def copy(self) -> Nnet:
        """A deep copy."""
        return copy.deepcopy(self)

    # Files

    @classmethod
    def read(cls, path: PathLike) -> Nnet:
        """The network in a file: raw, or within an acoustic model; binary or text.

        Raises:
            FormatError: the file cannot be read, is no network, or is damaged.
        """
        check_kind(path, str | os.PathLike, "the path of a model")
        return cls.read_any(Reader(path))

    @classmethod
    def read_any(cls, reader: Reader) -> Nnet:
        """The network that begins here, raw or within an acoustic model.

        Raises:
            FormatError: it is damaged.
        """
        if reader.peek_token() == "<TransitionModel>":
            return read_model_file(reader, Nnet.read_from).nnet
        return cls.read_from(reader)

    @classmethod
    def read_from(cls, reader: Reader) -> Nnet:
        """Read a network from its opening token on. Parts that no output needs are warned of.

        Raises:
            FormatError: it is damaged.
        """
        nnet = cls()
        start = reader.offset
        if reader.peek_token() in LINES:
            raise reader.error("a config, not a network: nnet3-init makes one of it")
        reader.expect_token("<Nnet3>")
        lines = []
        begin = reader.offset
        where = reader.offset
        if reader.read_line().strip():
            raise reader.error("a line end was expected after <Nnet3>", where)
        while True:
            where = reader.offset
            line = reader.read_line()
            if not line.strip():
                break
            lines.append(_line(reader, line, where))
        text = reader.data[begin : reader.offset].decode("utf-8", "surrogateescape")
        reader.expect_token("<NumComponents>")
        where = reader.offset
        count = reader.read_int32()
        if not 0 <= count < _MOST_COMPONENTS:
            raise reader.error(f"{count} is no number of components", where)
        for _ in range(count):
            reader.expect_token("<ComponentName>")
            where = reader.offset
            name = reader.read_token()
            if name in nnet.components:
                raise reader.error(f"two components are called {name!r}", where)
            nnet.components[name] = Component.read_new(reader)
        reader.expect_token("</Nnet3>")
        try:
            components = [line for line in lines if line.first_token == "component"]
            if components:
                raise components[0].error("a model's components stand after its nodes")
            nnet._replace(nodes_from_lines(drop_replaced([], lines)), nnet.components)
        except OpscopeError as error:
            raise reader.error(str(error), start) from error
        nnet._as_read = text, nnet.config_lines()
        warn_of_unused_parts(nnet.nodes, nnet.components)
        return nnet

    def write(self, path: PathLike, binary: bool = True) -> None:
        """Write it as a raw network, as `nnet3-copy` does. A network that was read and not
        changed gives the same bytes.

        Raises:
            SaveError: the file cannot be written.
        """
        writer = Writer(binary)
        self.write_to(writer)
        writer.save(path)

    def write_to(self, writer: Writer) -> None:
        """Write it from the opening to the closing token."""
        lines = self.config_lines()
        writer.write_token("<Nnet3>")
        if self._as_read is not None and self._as_read[1] == lines:
            writer.write_raw(self._as_read[0])
        else:
            writer.write_raw("\n" + "".join(f"{line}\n" for line in lines) + "\n")
        end = "" if writer.binary else "\n"
        writer.write_token("<NumComponents>")
        writer.write_int32(len(self.components))
        writer.write_raw(end)
        for name, component in self.components.items():
            writer.write_token("<ComponentName>")
            writer.write_token(name)
            component.write(writer)
            writer.write_raw(end)
        writer.write_token("</Nnet3>")

    # Descriptions

    def to_desc(self) -> OpList:
        """The network as an op list in the `nnet3.*` dialect; see `dialect`."""
        outputs = [node.name for node in self.outputs()]
        return to_desc(self.nodes, self.components, self.node_dims(), outputs)

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of all components, by the names of their variables in `to_desc()`."""
        return arrays(self.components)

    @classmethod
    def from_desc(cls, desc: OpList | NetDesc, values: Mapping[str, np.ndarray]) -> Nnet:
        """The network of a description in the dialect and of its arrays by name.

        Raises:
            FormatError: it is not of the dialect, or something is missing.
            ShapeError: dimensions do not fit.
        """
        nnet = cls()
        nnet._replace(*from_desc(desc, values))
        return nnet

    # Text

    def config_lines(self, dims: bool = False) -> list[str]:
        """The config lines of all nodes, as Kaldi writes them; `dims` adds their dimensions."""
        return lines_of(self.nodes, self.node_dims() if dims else None)

    def info(self, with_singular_values: bool = False) -> str:
        """The text that `nnet3-info` prints; with singular values as with `--verbose=2`."""
        text = ""
        if self.is_simple():
            left, right = self.context()
            text = f"left-context: {left}\nright-context: {right}\n"
        text += f"num-parameters: {self.num_parameters}\nmodulus: {self.modulus()}\n"
        text += "".join(f"{line}\n" for line in self.config_lines(dims=True))
        with singular_values(with_singular_values):
            for name, component in self.components.items():
                text += f"component name={name} type={component.info()}\n"
        return text

    # Nodes

    def node(self, name: str) -> NetworkNode:
        """The node called `name`.

        Raises:
            FormatError: there is none.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        names = [node.name for node in self.nodes]
        raise FormatError(f"the network has no node {name!r}{nearest(name, names)}")

    def has_node(self, name: str) -> bool:
        """Whether there is a node of this name."""
        return any(node.name == name for node in self.nodes)

    def inputs(self) -> list[NetworkNode]:
        """The input nodes."""
        return [node for node in self.nodes if node.kind == INPUT]

    def outputs(self) -> list[NetworkNode]:
        """The output nodes: descriptor nodes that no component follows."""
        return outputs_of(self.nodes)

    def input_dim(self, name: str) -> int:
        """Columns of the input node `name`; -1 where there is none."""
        return next((node.dim for node in self.inputs() if node.name == name), -1)

    def output_dim(self, name: str) -> int:
        """Columns of the output node `name`; -1 where there is none."""
        outputs = [node for node in self.outputs() if node.name == name]
        return self.node_dims()[name] if outputs else -1

    def node_dims(self) -> dict[str, int]:
        """Columns of every node.

        Raises:
            ShapeError: the summands of a descriptor differ.
        """
        dims: dict[str, int] = {}
        for node in self.nodes:
            if node.kind == COMPONENT:
                dims[node.name] = self.components[node.component].output_dim
            elif node.kind != DESCRIPTOR:
                dims[node.name] = node.dim
        for node in self.nodes:
            if node.descriptor is not None:
                try:
                    dims[node.name] = node.descriptor.dim(dims)
                except OpscopeError as error:
                    raise ShapeError(f"node {node.name!r}: {error}") from error
        return dims

    def modulus(self) -> int:
        """The network gives the same when all t are shifted by multiples of this."""
        return math.lcm(1, *(n.descriptor.modulus() for n in self.nodes if n.descriptor))

    def is_simple(self) -> bool:
        """Whether there are an `input`, an `output`, and no further input but an `ivector`."""
        inputs = {node.name for node in self.inputs()}
        outputs = {node.name for node in self.outputs()}
        if "output" not in outputs or "input" not in inputs:
            return False
        return len(inputs) == 1 or "ivector" in inputs

    def context(self) -> tuple[int, int]:
        """Frames of left and right context that an output frame needs.

        Raises:
            ShapeError: the network is not simple, or its context cannot be found.
        """
        if not self.is_simple():
            raise ShapeError("a network with an 'input', an 'output' and at most an 'ivector'")
        return simple_context(self.topology(), self.modulus())

    def topology(self) -> Topology:
        """The nodes as the compiler sees them; the same object as long as nothing changes."""
        components = self.components
        facts: list[Any] = []
        for node in self.nodes:
            facts.append(_node_facts(node))
            if node.kind == COMPONENT:
                facts.append(component_facts(components[node.component]))
        if self._topology is None or facts != self._topology[0]:
            self._topology = facts, self._make_topology()
        return self._topology[1]

    def _make_topology(self) -> Topology:
        dims = self.node_dims()
        numbers = {node.name: i for i, node in enumerate(self.nodes)}
        return Topology(
            [
                TopologyNode(
                    name=node.name,
                    kind=node.kind,
                    dim=dims[node.name],
                    descriptor=node.descriptor,
                    component=self.components.get(node.component),
                    component_name=node.component,
                    source=numbers.get(node.source, -1),
                    dim_offset=node.dim_offset,
                )
                for node in self.nodes
            ]
        )

    def check(self) -> None:
        """Refuse networks whose parts do not go together.

        Raises:
            FormatError: an unknown component; no input or no output.
            ShapeError: dimensions that differ; both are named.
        """
        for node in self.nodes:
            if node.kind == COMPONENT and node.component not in self.components:
                hint = nearest(node.component, self.components)
                raise FormatError(
                    f"component-node {node.name!r}: there is no component {node.component!r}{hint}"
                )
        dims = self.node_dims()
        for node in self.nodes:
            if node.kind == COMPONENT:
                source = input_name(node.name)
                wanted = self.components[node.component].input_dim
                if dims[source] != wanted:
                    raise ShapeError(
                        f"component-node {node.name!r} reads {self.node(source).descriptor} of "
                        f"dimension {dims[source]}, but its component {node.component!r} "
                        f"({self.components[node.component].type}) wants {wanted}"
                    )
            elif node.kind == DIM_RANGE and node.dim_offset + node.dim > dims[node.source]:
                raise ShapeError(
                    f"dim-range-node {node.name!r} takes columns {node.dim_offset} to "
                    f"{node.dim_offset + node.dim} of {node.source!r}, which has "
                    f"{dims[node.source]}"
                )
        if not self.inputs() or not self.outputs():
            raise FormatError("a network needs an input node and an output node")

    # Parameters

    @property
    def num_parameters(self) -> int:
        """How many trained numbers there are."""
        return sum(component.num_parameters for component in self.components.values())

    def vectorize(self) -> np.ndarray:
        """All parameters of all updatable components, float32, in Kaldi's order."""
        parts = [c.vectorize() for c in self.components.values() if c.is_updatable]
        return np.concatenate([np.zeros(0, np.float32), *parts])

    def unvectorize(self, vector: np.ndarray) -> None:
        """Set all parameters from a vector in the order of `vectorize`.

        Raises:
            ShapeError: it has the wrong size.
        """
        check_kind(vector, np.ndarray, "the vector of parameters")
        if vector.shape != (self.num_parameters,):
            raise ShapeError(
                f"the network has {self.num_parameters} parameters, the vector {vector.shape}"
            )
        begin = 0
        for component in self.components.values():
            size = component.num_parameters
            if size:
                component.unvectorize(vector[begin : begin + size])
            begin += size


def _line(reader: Reader, text: str, offset: int) -> ConfigLine:
    """A line of a model; errors name file and offset."""
    try:
        return ConfigLine(text.strip())
    except FormatError as error:
        raise reader.error(str(error), offset) from error
