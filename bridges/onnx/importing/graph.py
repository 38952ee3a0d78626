"""A checked graph of nodes: names resolved, functions written out, attributes as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....framework.base.errors import FormatError, nearest
from ....framework.base.untrusted.limits import check_limit
from ....framework.base.untrusted.values import Fills, check_fill, check_nesting, shown
from ....proto import onnx_pb2 as pb
from ..files.reading import STANDARD, ModelFile
from ..files.tensors import dtype_of, to_array, type_name

_KINDS = pb.AttributeProto
_NARROW = (pb.TensorProto.UINT4, pb.TensorProto.INT4)
"""Types of arrays in a file, which are held in bytes then; no value that changes has them."""
_NEWEST = 28
"""The newest opset whose operators are known."""


@dataclass(eq=False, slots=True)
class Node:
    """A call of an operator.

    Attributes:
        op: its type. domain: "" for the standard one. version: of the operator set.
        name: as messages give it.
        inputs, outputs: names of values, unique in the model; "" for one that is left out.
        attrs: name -> number, text, array, list of these, or `Graph`.
        captures: values around a graph among the attributes that it reads.
        kind: how it is computed (`calls.Kind`); None: as the table of ONNX's operators says.
    """

    op: str
    domain: str
    version: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]
    captures: tuple[str, ...] = ()
    kind: Any = None

    def title(self) -> str:
        """How errors name it."""
        domain = f"{self.domain}." if self.domain else ""
        return f"node {shown(self.name)} ({domain}{self.op}, opset {self.version})"

    def reads(self) -> list[str]:
        """The values that it needs."""
        return [name for name in (*self.inputs, *self.captures) if name]

    def graphs(self) -> list[Graph]:
        """The graphs inside it, among its attributes and in lists of these."""
        listed = (one if isinstance(one, list) else [one] for one in self.attrs.values())
        return [one for values in listed for one in values if isinstance(one, Graph)]


@dataclass(eq=False, slots=True)
class Graph:
    """Nodes in the order in which they run.

    Attributes:
        inputs, outputs: names of values, unique in the model.
        nodes: in order.
        captures: values around it that it reads.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: list[Node]
    captures: tuple[str, ...] = ()


@dataclass(frozen=True)
class InputInfo:
    """An input or output of a model.

    Attributes:
        name: of the value. dtype: None where it is no tensor of numbers.
        shape: a number, or the text or None of a dimension that may vary; None: the rank is open.
    """

    name: str
    dtype: np.dtype | None
    shape: tuple[int | str | None, ...] | None
    kind: str = "tensor"


@dataclass(eq=False)
class Model:
    """A model that has been read and checked.

    Attributes:
        path: of the file. graph: the main graph.
        arrays: initializers by the unique name of the value.
        inputs, outputs: as declared; inputs that have an initializer are optional.
        opset: of the standard operators. metadata: texts by key.
    """

    path: str
    graph: Graph
    arrays: dict[str, np.ndarray]
    inputs: list[InputInfo]
    outputs: list[InputInfo]
    opset: int
    metadata: dict[str, str] = field(default_factory=dict)


def check_model(file: ModelFile) -> Model:
    """The checked graph of a model that was read.

    Raises:
        FormatError: undefined or doubly defined names, cycles, attributes of wrong kinds, damaged
            arrays, too deep nesting, an operator set beyond the newest one.
    """
    reader = _Reader(file)
    opset = file.opsets.get("", 0)
    if opset > _NEWEST:
        raise FormatError(
            f"{file.path}: operator set {opset} is newer than {_NEWEST}, the newest known here"
        )
    proto = file.model.graph
    env: dict[str, str] = {}
    with Fills():
        graph = reader.graph(proto, env, file.path, 0)
    initial = {tensor.name for tensor in proto.initializer}
    return Model(
        file.path,
        graph,
        reader.arrays,
        [_info(value, file.path) for value in proto.input if value.name not in initial],
        [_info(value, file.path) for value in proto.output],
        opset,
        {entry.key: entry.value for entry in file.model.metadata_props},
    )


def _info(value: pb.ValueInfoProto, path: str) -> InputInfo:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return InputInfo(value.name, None, None, (kind or "tensor_type").removesuffix("_type"))
    tensor = value.type.tensor_type
    dtype = None
    if tensor.elem_type in _NARROW:
        raise FormatError(
            f"{path}: value {shown(value.name)}: inputs and outputs of type"
            f" {type_name(tensor.elem_type)} are not supported"
        )
    if tensor.elem_type not in (pb.TensorProto.UNDEFINED, pb.TensorProto.STRING):
        dtype = dtype_of(tensor.elem_type, f"{path}: value {shown(value.name)}")
    if not tensor.HasField("shape"):
        return InputInfo(value.name, dtype, None)
    dims: list[int | str | None] = []
    for dim in tensor.shape.dim:
        which = dim.WhichOneof("value")
        dims.append(getattr(dim, which) if which else None)
    return InputInfo(value.name, dtype, tuple(dims))


class _Reader:
    def __init__(self, file: ModelFile) -> None:
        self.file = file
        self.arrays: dict[str, np.ndarray] = {}
        self._narrow: set[str] = set()
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._count = 0
        self._functions: dict[tuple[str, str, str], pb.FunctionProto] = {}
        for function in file.model.functions:
            key = _domain(function.domain), function.name, function.overload
            if key in self._functions:
                raise FormatError(f"{file.path}: function {shown(function.name)} is defined twice")
            self._functions[key] = function

    def graph(self, proto: pb.GraphProto, env: dict[str, str], what: str, depth: int) -> Graph:
        """A graph; `env` maps names in the file to unique ones and gets the graph's own."""
        check_nesting(depth, what)
        outer = set(env.values())
        initial = {}
        for tensor in proto.initializer:
            self._define(tensor.name, env, what, initial)
            if tensor.data_type in _NARROW:
                self._narrow.add(env[tensor.name])
            self.arrays[env[tensor.name]] = to_array(tensor, self.file.folder, what)
        for sparse in proto.sparse_initializer:
            self._define(sparse.values.name, env, what, initial)
            self.arrays[env[sparse.values.name]] = self._dense(sparse, what)
        inputs = []
        arrays = set(initial)
        for value in proto.input:
            if value.name not in arrays:
                self._define(value.name, env, what, initial)
                inputs.append(env[value.name])
            elif depth:
                inputs.append(env[value.name])
        nodes = self._nodes(proto.node, env, self.file.opsets, {}, what, depth, initial)
        outputs = []
        for value in proto.output:
            if value.name not in env:
                raise FormatError(f"{what}: no node makes the output {shown(value.name)}")
            outputs.append(env[value.name])
        return _with_captures(Graph(tuple(inputs), tuple(outputs), nodes), outer)

    def _define(self, name: str, env: dict[str, str], what: str, own: dict[str, Any]) -> None:
        if not name:
            raise FormatError(f"{what}: a value has no name")
        if name in own:
            raise FormatError(f"{what}: value {shown(name)} is defined twice")
        own[name] = True
        env[name] = self._unique(name)

    def _unique(self, name: str) -> str:
        free_name = name
        while free_name in self._names:
            self._numbers[name] = self._numbers.get(name, 1) + 1
            free_name = f"{name}~{self._numbers[name]}"
        self._names.add(free_name)
        return free_name

    def _nodes(
        self,
        protos: Iterable[pb.NodeProto],
        env: dict[str, str],
        opsets: Mapping[str, int],
        attributes: Mapping[str, pb.AttributeProto],
        what: str,
        depth: int,
        own: dict[str, Any],
    ) -> list[Node]:
        nodes: list[Node] = []
        protos = list(protos)
        later = {name for proto in protos for name in proto.output if name}
        for number, proto in enumerate(protos):
            if depth:
                self._count += 1
                check_limit("nodes", self._count, f"{what}: nodes of functions and inner graphs")
            name = proto.name or next((o for o in proto.output if o), "") or f"#{number}"
            place = f"{what}: node {shown(name)} ({shown(proto.op_type)[1:-1]})"
            for given in proto.input:
                if given and given not in env:
                    if given in later:
                        raise FormatError(
                            f"{place}: input {shown(given)} is made by a later node or by itself:"
                            " the nodes are not in order, or wait for each other"
                        )
                    raise FormatError(
                        f"{place}: nothing makes the input {shown(given)}{nearest(given, env)}"
                    )
            key = _domain(proto.domain), proto.op_type, proto.overload
            attrs = self._attributes(proto, attributes, place)
            function = self._functions.get(key)
            if function is not None:
                nodes += self._call(function, proto, attrs, env, own, place, depth)
                continue
            version = opsets.get(key[0])
            if version is None:
                raise FormatError(
                    f"{place}: its domain {shown(proto.domain)} is none of the model's operator"
                    f" sets: {', '.join(repr(d or 'ai.onnx') for d in sorted(opsets))}"
                )
            inputs = tuple(env[given] if given else "" for given in proto.input)
            if key[1] == "QuantizeLinear" and any(name in self._narrow for name in inputs):
                raise FormatError(f"{place}: quantizing to integers of 4 bits is not supported")
            values = {
                attribute.name: self._value(attribute, env, f"{place}: ", depth, opsets)
                for attribute in attrs.values()
            }
            for out in proto.output:
                if out:
                    self._define(out, env, place, own)
            value = values.get("value")
            if key[:2] == ("", "Constant") and isinstance(value, np.ndarray) and proto.output:
                self.arrays[env[proto.output[0]]] = value
                continue
            outputs = tuple(env[out] if out else "" for out in proto.output)
            node = Node(key[1], key[0], version, name, inputs, outputs, values)
            captures = (capture for graph in node.graphs() for capture in graph.captures)
            node.captures = tuple(dict.fromkeys(captures))
            nodes.append(node)
        return nodes

    def _attributes(
        self, proto: pb.NodeProto, around: Mapping[str, pb.AttributeProto], place: str
    ) -> dict[str, pb.AttributeProto]:
        """The attributes of a node; those that name one of the function around it are replaced."""
        attributes_by_name: dict[str, pb.AttributeProto] = {}
        for attribute in proto.attribute:
            if attribute.name in attributes_by_name:
                raise FormatError(f"{place}: attribute {shown(attribute.name)} is given twice")
            if attribute.ref_attr_name:
                given = around.get(attribute.ref_attr_name)
                if given is None:
                    continue
                named = pb.AttributeProto()
                named.CopyFrom(given)
                named.name = attribute.name
                attribute = named
            attributes_by_name[attribute.name] = attribute
        return attributes_by_name

    def _call(
        self,
        function: pb.FunctionProto,
        proto: pb.NodeProto,
        attrs: Mapping[str, pb.AttributeProto],
        around: dict[str, str],
        own: dict[str, Any],
        place: str,
        depth: int,
    ) -> list[Node]:
        """The nodes of a call of a function."""
        check_nesting(depth, place)
        if len(proto.input) > len(function.input) or len(proto.output) > len(function.output):
            raise FormatError(
                f"{place}: the function takes {len(function.input)} inputs and gives"
                f" {len(function.output)} outputs"
            )
        given = {attribute.name: attribute for attribute in function.attribute_proto}
        given |= attrs
        unknown = set(given) - {*function.attribute} - {a.name for a in function.attribute_proto}
        if unknown:
            raise FormatError(f"{place}: the function has no attribute {shown(min(unknown))}")
        opsets = {_domain(entry.domain): entry.version for entry in function.opset_import}
        env: dict[str, str] = {}
        inner: dict[str, Any] = {}
        for name, value in zip(function.input, proto.input, strict=False):
            if value:
                env[name] = around[value]
            inner[name] = True
        body = []
        for node in function.node:  # optional inputs that the call leaves out are left out inside
            if any(name in inner and name not in env for name in node.input):
                copied = pb.NodeProto()
                copied.CopyFrom(node)
                del copied.input[:]
                copied.input.extend(
                    "" if name in inner and name not in env else name for name in node.input
                )
                node = copied
            body.append(node)
        inner = {name: True for name in inner if name in env}
        nodes = self._nodes(
            body, env, {**self.file.opsets, **opsets}, given, place, depth + 1, inner
        )
        for name, value in zip(function.output, proto.output, strict=False):
            if name not in env:
                raise FormatError(f"{place}: no node makes the function's output {shown(name)}")
            if value:
                self._define(value, around, place, own)
                nodes.append(Node("Identity", "", 13, value, (env[name],), (around[value],), {}))
        return nodes

    def _value(
        self,
        attribute: pb.AttributeProto,
        env: dict[str, str],
        what: str,
        depth: int,
        opsets: Mapping[str, int],
    ) -> Any:
        what = f"{what}attribute {shown(attribute.name)}"
        kind = attribute.type
        if kind == _KINDS.FLOAT:
            return attribute.f
        if kind == _KINDS.INT:
            return attribute.i
        if kind == _KINDS.STRING:
            return _text(attribute.s, what)
        if kind == _KINDS.TENSOR:
            return to_array(attribute.t, self.file.folder, what)
        if kind == _KINDS.FLOATS:
            return list(attribute.floats)
        if kind == _KINDS.INTS:
            return list(attribute.ints)
        if kind == _KINDS.STRINGS:
            return [_text(text, what) for text in attribute.strings]
        if kind == _KINDS.TENSORS:
            return [to_array(tensor, self.file.folder, what) for tensor in attribute.tensors]
        if kind == _KINDS.GRAPH:
            return self.graph(attribute.g, dict(env), what, depth + 1)
        if kind == _KINDS.GRAPHS:
            return [self.graph(graph, dict(env), what, depth + 1) for graph in attribute.graphs]
        if kind == _KINDS.SPARSE_TENSOR:
            return self._dense(attribute.sparse_tensor, what)
        if kind == _KINDS.TYPE_PROTO:
            return attribute.tp
        raise FormatError(f"{what} is of kind {kind}, which is not supported")

    def _dense(self, sparse: pb.SparseTensorProto, what: str) -> np.ndarray:
        """A sparse array written out."""
        dims = tuple(sparse.dims)
        values = to_array(sparse.values, self.file.folder, what)
        indices = to_array(sparse.indices, self.file.folder, what)
        if any(dim < 0 for dim in dims) or values.ndim != 1 or indices.dtype != np.int64:
            raise FormatError(f"{what}: a damaged sparse array of shape {list(dims)}")
        check_fill(dims, values.dtype.itemsize, what)
        dense = np.zeros(dims, values.dtype)
        shape = (len(values),) if indices.ndim == 1 else (len(values), len(dims))
        if indices.shape != shape:
            raise FormatError(f"{what}: the indices of a sparse array are {list(indices.shape)}")
        bounds = np.array(dims if indices.ndim == 2 else dense.size)
        if ((indices < 0) | (indices >= bounds)).any():
            raise FormatError(f"{what}: an index of a sparse array lies outside of {list(dims)}")
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
        return dense


def _domain(name: str) -> str:
    return "" if name in STANDARD else name


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise FormatError(f"{what} is no UTF-8") from None


def _with_captures(graph: Graph, outer: set[str]) -> Graph:
    """The graph with the values of `outer` that its nodes or outputs name."""
    reads = [name for node in graph.nodes for name in node.reads()] + list(graph.outputs)
    graph.captures = tuple(dict.fromkeys(name for name in reads if name in outer))
    return graph


def instantiated(graph: Graph, values: Mapping[str, str], suffix: str) -> Graph:
    """A copy of a graph for one use: inputs replaced by `values`, own names with a suffix."""
    names = dict(values)
    for node in graph.nodes:
        for out in node.outputs:
            if out:
                names[out] = out + suffix
    nodes = [_renamed(node, names) for node in graph.nodes]
    outputs = tuple(names.get(name, name) for name in graph.outputs)
    inputs = tuple(names.get(name, name) for name in graph.inputs)
    captures = tuple(names.get(name, name) for name in graph.captures)
    return Graph(inputs, outputs, nodes, captures)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    attrs = node.attrs
    if node.captures and any(name in names for name in node.captures):
        attrs = {
            key: renamed(value, names) if isinstance(value, Graph) else value
            for key, value in attrs.items()
        }
    return replace(
        node,
        inputs=tuple(names.get(name, name) for name in node.inputs),
        outputs=tuple(names.get(name, name) for name in node.outputs),
        attrs=attrs,
        captures=tuple(names.get(name, name) for name in node.captures),
    )


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """A graph whose captures have other names; its own names stay."""
    nodes = [_renamed(node, names) for node in graph.nodes]
    return Graph(
        graph.inputs,
        tuple(names.get(name, name) for name in graph.outputs),
        nodes,
        tuple(names.get(name, name) for name in graph.captures),
    )
