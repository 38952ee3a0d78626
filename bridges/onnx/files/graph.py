"""A graph of ONNX operators while it is built: nodes, unique names, constants kept once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.files.tensor_file import array_bytes
from ....proto import onnx_pb2 as pb
from .nested import all_nodes, names_read
from .reading import STANDARD
from .tensors import from_array, number_of

OPSET = 17
"""What is written by default: runtimes refuse files that are newer than they know."""
IR_OF_OPSET = ((18, 8), (20, 9), (22, 10), (23, 11), (24, 12), (25, 13), (26, 14))
"""The IR version for opsets up to each; see onnx/helper.py's table of versions."""


class Graph:
    """A graph, or a sub-graph of it, to which nodes are added in the order in which they run.

    Names are values' names, as in ONNX. Arrays stay arrays: `write_model` puts them into the file
    or beside it.

    Args:
        name: of the graph.
        opset: version of the standard operators.
        around: the graph whose node this one belongs to, for a sub-graph.

    Attributes:
        arrays: name -> array: initializers.
        nibbles: arrays of bytes that hold two numbers of 4 bits each -> the shape of the numbers.
        metadata: key -> text of the model.
        message: the graph's message, without initializers.
    """

    def __init__(self, name: str, opset: int = OPSET, *, around: Graph | None = None) -> None:
        self.opset = opset if around is None else around.opset
        self.message = pb.GraphProto(name=name)
        self.arrays: dict[str, np.ndarray] = {}
        self.nibbles: dict[str, tuple[int, ...]] = {}
        self.metadata: dict[str, str] = {}
        self._around = around
        self._names: set[str] = around._names if around else set()
        self._known: dict[tuple[Any, ...], str] = around._known if around else {}

    @classmethod
    def of_message(cls, message: pb.GraphProto, opset: int, arrays: dict[str, np.ndarray]) -> Graph:
        """A graph that was read, to be changed; `arrays` are its initializers."""
        graph = cls(message.name or "graph", opset)
        graph.message.node.extend(message.node)
        graph.message.input.extend(one for one in message.input if one.name not in arrays)
        graph.message.output.extend(message.output)
        graph.arrays = dict(arrays)
        graph._names.update(arrays, (one.name for one in graph.message.input))
        graph._names.update(name for node in message.node for name in node.output)
        return graph

    @property
    def root(self) -> Graph:
        """The outermost graph, which owns the constants of all."""
        return self if self._around is None else self._around.root

    def unique(self, name: str) -> str:
        """`name`, or with a number after it where a value has that name; empty ones get one."""
        name = name or "value"
        free_name = name
        number = 1
        while free_name in self._names:
            number += 1
            free_name = f"{name}_{number}"
        self._names.add(free_name)
        return free_name

    def input(self, name: str, dtype: Any, dims: Sequence[int | str]) -> str:
        """Declare an input.

        Args:
            name: must be new.
            dtype: of NumPy.
            dims: a number each, or the name of one that may vary.

        Raises:
            FormatError: a value has this name.
        """
        self._claim(name)
        self.message.input.append(_value_info(name, dtype, dims))
        return name

    def output(self, name: str, dtype: Any, dims: Sequence[int | str] | None = None) -> None:
        """Declare that a value is an output; without `dims` its rank is left open."""
        self.message.output.append(_value_info(name, dtype, dims))

    def _claim(self, name: str) -> None:
        if name in self._names:
            raise FormatError(f"ONNX: two values are called {name!r}")
        self._names.add(name)

    def constant(self, value: Any, name: str = "", dtype: Any = None) -> str:
        """The name of an initializer with this value; equal small ones share one.

        Args:
            value: an array or what becomes one.
            name: wanted, not certain.
            dtype: of the array; None leaves it.
        """
        array = np.asarray(value, dtype)
        key = None
        if array.nbytes <= 1024 and array.dtype != object:
            key = (array.dtype.str, array.shape, bytes(array_bytes(array)))
            if key in self._known:
                return self._known[key]
        name = self.unique(name or f"const_{array.dtype.name}")
        self.root.arrays[name] = array
        if key is not None:
            self._known[key] = name
        return name

    def four_bits(self, value: np.ndarray, name: str) -> str:
        """The name of an initializer of numbers of 4 bits (UINT4), given as bytes up to 15."""
        flat = value.reshape(-1)
        flat = np.concatenate((flat, np.zeros(flat.size % 2, np.uint8)))
        name = self.unique(name)
        self.root.arrays[name] = flat[::2] | flat[1::2] << 4
        self.root.nibbles[name] = value.shape
        return name

    def ints(self, *values: int) -> str:
        """A constant list of int64, as operators want axes, shapes and indices."""
        return self.constant(np.array(values, np.int64))

    def node(
        self,
        op_type: str,
        inputs: Iterable[str | None],
        name: str = "",
        *,
        outputs: int | Sequence[str] = 1,
        domain: str = "",
        **attributes: Any,
    ) -> Any:
        """Add a node.

        Args:
            op_type: a standard operator of this opset, or one of a domain.
            inputs: values; None or "" for one that is left out.
            name: of the node and, where `outputs` is a number, of its outputs.
            outputs: how many, or their names (which must be new; "" for one left out).
            attributes: numbers, texts, arrays, lists of these, or a `Graph`. None: left out.

        Returns:
            The output's name, a list of several.
        """
        name = name or op_type.lower()
        if isinstance(outputs, int):
            names = [self.unique(name if not i else f"{name}_{i}") for i in range(outputs)]
        else:
            names = list(outputs)
            for each in filter(None, names):
                self._claim(each)
        ends = [value or "" for value in inputs]
        while ends and not ends[-1]:
            ends.pop()
        node = self.message.node.add(op_type=op_type, name=names[0] or name, domain=domain)
        node.input.extend(ends)
        node.output.extend(names)
        for key, value in attributes.items():
            if value is not None:
                node.attribute.append(attribute(key, value))
        return names[0] if len(names) == 1 else names

    def sub_graph(self, name: str) -> Graph:
        """A graph for an attribute of a node of this one; it sees the values around it."""
        return Graph(name, around=self)

    def drop_unread(self) -> None:
        """Take away nodes and constants that no output needs."""
        needed = {info.name for info in self.message.output}
        kept = list[Any]()
        for node in reversed(self.message.node):
            if needed.intersection(node.output):
                kept.append(node)
                needed |= names_read(node)
        if len(kept) < len(self.message.node):
            del self.message.node[:]
            self.message.node.extend(kept[::-1])
        for name in set(self.arrays) - needed:
            del self.arrays[name]

    def model(self, description: str = "") -> pb.ModelProto:
        """The model's message, without initializers."""
        from .... import __version__

        version = next((ir for opset, ir in IR_OF_OPSET if self.opset <= opset), None)
        if version is None:
            raise FormatError(f"ONNX: opset {self.opset} is not known; up to 26")
        model = pb.ModelProto(
            ir_version=version,
            producer_name="opscope",
            producer_version=__version__,
            doc_string=description,
            graph=self.message,
        )
        model.opset_import.add(version=self.opset)
        domains = {node.domain for node in all_nodes(self.message.node)} - {*STANDARD}
        for domain in sorted(domains):
            model.opset_import.add(domain=domain, version=1)
        for key, value in self.metadata.items():
            model.metadata_props.add(key=key, value=value)
        return model


def _value_info(name: str, dtype: Any, dims: Sequence[int | str] | None) -> pb.ValueInfoProto:
    info = pb.ValueInfoProto(name=name)
    info.type.tensor_type.elem_type = number_of(np.dtype(dtype))
    if dims is not None:
        info.type.tensor_type.shape.SetInParent()
        for dim in dims:
            if isinstance(dim, str):
                info.type.tensor_type.shape.dim.add(dim_param=dim)
            else:
                info.type.tensor_type.shape.dim.add(dim_value=dim)
    return info


def attribute(name: str, value: Any) -> pb.AttributeProto:
    """The message of an attribute; its kind follows from the value's.

    Raises:
        FormatError: there is no kind for it.
    """
    kinds = pb.AttributeProto
    message = pb.AttributeProto(name=name)
    if isinstance(value, Graph):
        message.type = kinds.GRAPH
        message.g.CopyFrom(value.message)
    elif isinstance(value, np.ndarray):
        message.type = kinds.TENSOR
        message.t.CopyFrom(from_array(value))
    elif isinstance(value, str):
        message.type = kinds.STRING
        message.s = value.encode()
    elif isinstance(value, (bool, int, np.integer)):
        message.type = kinds.INT
        message.i = int(value)
    elif isinstance(value, (float, np.floating)):
        message.type = kinds.FLOAT
        message.f = float(value)
    elif isinstance(value, (list, tuple)):
        _put_list(message, value)
    else:
        raise FormatError(f"ONNX: attribute {name!r} cannot be {value!r}")
    return message


def _put_list(message: pb.AttributeProto, values: Sequence[Any]) -> None:
    if all(isinstance(value, (int, np.integer)) for value in values):
        message.type = pb.AttributeProto.INTS
        message.ints.extend(int(value) for value in values)
    elif all(isinstance(value, (int, float, np.number)) for value in values):
        message.type = pb.AttributeProto.FLOATS
        message.floats.extend(float(value) for value in values)
    elif all(isinstance(value, str) for value in values):
        message.type = pb.AttributeProto.STRINGS
        message.strings.extend(value.encode() for value in values)
    else:
        raise FormatError(f"ONNX: attribute {message.name!r} cannot be {values!r}")


def plain_name(text: str) -> str:
    """A name that all tools take: letters, digits, `_ . - / :`; others become `_`."""
    return re.sub(r"[^\w.\-/:]", "_", text)
