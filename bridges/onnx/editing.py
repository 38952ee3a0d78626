"""Edits of ONNX models, on the message of the file: what no edit touches stays as it was.

A node is called as the first value that it writes; names may mean any value of the outer graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...framework.base.errors import ShapeError, SlotError, VariableError
from ...framework.editing import operations as edits
from ...framework.editing.operations import Edit, Performers, perform_by
from ...framework.editing.patterns import matching, no_match, renamed_pairs
from ...proto import onnx_pb2 as pb
from .files.nested import all_graphs, all_nodes, names_read
from .files.tensors import dtype_of, from_array


@dataclass
class OnnxGraph:
    """A graph that is edited.

    Attributes:
        graph: the message, with all arrays inside.
        type_of: the type of a value, for a new input.
    """

    graph: pb.GraphProto
    type_of: Callable[[str], pb.ValueInfoProto]

    def nodes(self) -> list[str]:
        """What nodes are called."""
        return [_title(node) for node in self.graph.node]

    def values(self) -> list[str]:
        """All values: inputs, initializers, and what nodes write."""
        given = [info.name for info in self.graph.input]
        given += [tensor.name for tensor in self.graph.initializer]
        written = [name for node in self.graph.node for name in node.output if name]
        return list(dict.fromkeys([*given, *written]))

    def writer(self, name: str) -> int:
        """The number of the node that writes a value.

        Raises:
            VariableError: none does.
        """
        for number, node in enumerate(self.graph.node):
            if name in node.output:
                return number
        if name in self.values():
            raise VariableError(f"no node computes {name!r}: it is given")
        raise VariableError(no_match(name, self.values(), "value"))

    def readers(self, name: str) -> list[str]:
        """The nodes that read a value, themselves or in graphs inside."""
        return [_title(node) for node in self.graph.node if name in names_read(node)]


def perform(net: OnnxGraph, edit: Edit) -> str:
    """Carry out an edit; what was done, in one sentence.

    Raises:
        VariableError: ONNX models cannot do it.
        OpscopeError: it does not fit the model.
    """
    return perform_by(_TABLE, _REASONS, net, edit)


def _title(node: pb.NodeProto) -> str:
    return next(filter(None, node.output), node.name)


def _rename(net: OnnxGraph, edit: edits.Rename) -> str:
    names = dict(renamed_pairs(net.values(), edit.old, edit.new, "value"))
    kept = set(net.values()) - names.keys()
    inner = {name for one in all_nodes(net.graph.node) for name in one.output} - set(net.values())
    for new in names.values():
        if not new or new in kept | inner:
            raise VariableError(f"there is a value {new!r} already" if new else "an empty name")
    if len(set(names.values())) < len(names):
        raise VariableError(f"{edit.old!r} to {edit.new!r} gives two values one name")
    _put_names(net.graph, names)
    return f"Renamed {len(names)} values {edit.old} to {edit.new}."


def _put_names(graph: pb.GraphProto, names: Mapping[str, str]) -> None:
    for one in all_graphs(graph):
        for info in (*one.input, *one.output, *one.value_info, *one.initializer):
            info.name = names.get(info.name, info.name)
    for node in all_nodes(graph.node):
        for listed in (node.input, node.output):
            listed[:] = [names.get(name, name) for name in listed]


def _remove(net: OnnxGraph, edit: edits.Remove) -> str:
    graph = net.graph
    if edit.outputs_only:
        known = [info.name for info in graph.output]
        gone = matching(known, edit.names, "output")
        if len(gone) == len(known):
            raise VariableError("this would remove all outputs")
        _keep(graph.output, lambda info: info.name not in gone)
        return f"Removed {len(gone)} outputs."
    gone = matching(net.nodes(), edit.names, "node")
    left = [info.name for info in graph.output]
    for name in gone:
        node = graph.node[net.writer(name)]
        if edit.bypass:
            given = {tensor.name for tensor in graph.initializer}
            read = [one for one in dict.fromkeys(node.input) if one and one not in given]
            if len(read) != 1:
                raise VariableError(f"{node.op_type} {name!r} reads {len(read)} values, not one")
            if name in left:
                raise VariableError(f"{name!r} is an output, which nothing else computes")
            for reader in graph.node:
                _put_reads(reader, {name: read[0]})
        graph.node.remove(node)
    for name in gone:
        readers = net.readers(name) + ["the outputs"] * (name in left)
        if readers:
            raise VariableError(
                f"{name!r} is read by {', '.join(readers)}: also remove these, connect them to"
                f" something else, or bypass {name!r}"
            )
    _drop_unread(net)
    return f"Removed {len(gone)} nodes."


def _put_reads(node: pb.NodeProto, names: Mapping[str, str]) -> None:
    for one in all_nodes([node]):
        one.input[:] = [names.get(name, name) for name in one.input]


def _keep(listed: Any, wanted: Callable[[Any], bool]) -> None:
    kept = [one for one in listed if wanted(one)]
    del listed[:]
    listed.extend(kept)


def _drop_unread(net: OnnxGraph) -> None:
    """Forget initializers and notes of values that nothing mentions any more."""
    graph = net.graph
    used = {name for node in graph.node for name in (*names_read(node), *node.output)}
    used.update(info.name for info in graph.output)
    for listed in (graph.initializer, graph.value_info):
        _keep(listed, lambda one: one.name in used)


def _remove_orphans(net: OnnxGraph, edit: edits.RemoveOrphans) -> str:
    graph = net.graph
    before = len(graph.node)
    wanted = {info.name for info in graph.output}
    kept: list[pb.NodeProto] = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted |= names_read(node)
    if edit.nodes:
        _keep(graph.node, kept.__contains__)
    if edit.inputs:
        _keep(graph.input, lambda info: info.name in wanted)
    if edit.parameters:
        _drop_unread(net)
    return f"Removed {before - len(graph.node)} nodes."


def _replace(net: OnnxGraph, edit: edits.Replace) -> str:
    node = net.graph.node[net.writer(edit.name)]
    node.op_type, node.domain = edit.type, ""
    del node.attribute[:]
    for name, value in edit.settings.items():
        node.attribute.append(_attribute(name, value))
    return f"{edit.name} is a {edit.type} now."


def _attribute(name: str, value: Any) -> pb.AttributeProto:
    """An attribute of a number, a text, an array, or a list of numbers."""
    kinds = pb.AttributeProto
    if isinstance(value, (bool, int, np.integer)):
        return kinds(name=name, type=kinds.INT, i=int(value))
    if isinstance(value, float):
        return kinds(name=name, type=kinds.FLOAT, f=value)
    if isinstance(value, str):
        return kinds(name=name, type=kinds.STRING, s=value.encode())
    if isinstance(value, np.ndarray):
        return kinds(name=name, type=kinds.TENSOR, t=from_array(value))
    if isinstance(value, (list, tuple)) and all(isinstance(one, int) for one in value):
        return kinds(name=name, type=kinds.INTS, ints=value)
    if isinstance(value, (list, tuple)) and all(isinstance(one, (int, float)) for one in value):
        return kinds(name=name, type=kinds.FLOATS, floats=value)
    raise VariableError(f"{name}={value!r} is no attribute of a node")


def _connect(net: OnnxGraph, edit: edits.Connect) -> str:
    node = net.graph.node[net.writer(edit.name)]
    known = net.values()
    for name in edit.inputs:
        if name not in known:
            raise VariableError(no_match(name, known, "value"))
    wanted = list(edit.inputs)
    if edit.number >= 0:
        if edit.number >= len(node.input) or len(wanted) != 1:
            raise SlotError(f"{edit.name!r} has no input {edit.number}; it has {len(node.input)}")
        wanted = [*node.input[: edit.number], wanted[0], *node.input[edit.number + 1 :]]
    elif len(wanted) < len(node.input):
        wanted += node.input[len(wanted) :]  # weights, mostly
    node.input[:] = wanted
    _order(net.graph)
    _drop_unread(net)
    return f"Node {edit.name} reads {', '.join(wanted)}."


def _order(graph: pb.GraphProto) -> None:
    """Put nodes after those whose values they read.

    Raises:
        VariableError: nodes wait for each other.
    """
    left = list(graph.node)
    ordered: list[pb.NodeProto] = []
    missing = {name for node in left for name in node.output}
    while left:
        ready = next((node for node in left if missing.isdisjoint(names_read(node))), None)
        if ready is None:
            raise VariableError(f"{_title(left[0])!r} would wait for itself")
        left.remove(ready)
        ordered.append(ready)
        missing.difference_update(ready.output)
    del graph.node[:]
    graph.node.extend(ordered)


def _cut(net: OnnxGraph, edit: edits.Cut) -> str:
    graph = net.graph
    before = len(graph.node)
    origins = (*edit.inputs.values(), *edit.outputs.values())
    types = {origin: net.type_of(origin) for origin in origins}
    for origin in edit.inputs.values():
        node = graph.node[net.writer(origin)]
        number = list(node.output).index(origin)
        node.output[number] = ""
        info = graph.input.add()
        info.CopyFrom(types[origin])
    if edit.outputs:
        del graph.output[:]
        for origin in edit.outputs.values():
            if origin not in edit.inputs.values():
                net.writer(origin)
            graph.output.add().CopyFrom(types[origin])
    _remove_orphans(net, edits.RemoveOrphans(inputs=True))
    given = {info.name for info in graph.input}
    lost = [name for name in edit.inputs.values() if name not in given]
    if lost:
        raise VariableError(f"no output depends on {lost[0]!r}, which was to be an input")
    names = {origin: name for name, origin in (*edit.inputs.items(), *edit.outputs.items())}
    taken = set(net.values()) - names.keys()
    for name in names.values():
        if name in taken:
            raise VariableError(f"there is a value {name!r} already")
    _put_names(graph, names)
    return f"Cut out {len(graph.node)} of {before} nodes."


def _set_value(net: OnnxGraph, edit: edits.SetValue) -> str:
    for tensor in net.graph.initializer:
        if tensor.name == edit.name:
            if tuple(tensor.dims) != edit.value.shape:
                raise ShapeError(
                    f"{edit.name!r} is {list(tensor.dims)}, not {list(edit.value.shape)}"
                )
            dtype = dtype_of(tensor.data_type, edit.name)
            tensor.CopyFrom(from_array(np.ascontiguousarray(edit.value, dtype), edit.name))
            return f"Set {edit.value.size} numbers of {edit.name}."
    known = [tensor.name for tensor in net.graph.initializer]
    raise VariableError(no_match(edit.name, known, "initializer"))


_TABLE: Final[Performers] = {
    edits.Rename: _rename,
    edits.Remove: _remove,
    edits.RemoveOrphans: _remove_orphans,
    edits.Replace: _replace,
    edits.Connect: _connect,
    edits.Cut: _cut,
    edits.SetValue: _set_value,
}
_TRAINED: Final = "an ONNX file says nothing of training; `opscope convert` makes a net of it"
_REASONS: Final = {
    **dict.fromkeys((edits.Freeze, edits.Unfreeze, edits.SetRate, edits.SetFactor), _TRAINED),
    edits.SetDropout: "runtimes leave dropout out",
    edits.SetRole: "its values have no roles; see cut",
    **dict.fromkeys(
        (edits.Insert, edits.NewOutput, edits.LowRank, edits.Copy, edits.SetProperty),
        "`opscope convert` makes a net of operators, which can be edited so",
    ),
}
