"""Models of other programs whose parts lie inside one another: ONNX graphs and functions, NDL."""

from __future__ import annotations

import numpy as np

from opscope.bridges.onnx.importing.model import model_of_bytes
from opscope.cntk.base.text import Source
from opscope.cntk.ndl import Evaluator, parse_ndl
from opscope.cntk.network.network import Network
from opscope.proto import onnx_pb2 as pb

_CONDITION, _X = np.array(True), np.array([3], np.float32)


def _model(nodes: list[pb.NodeProto], output: str) -> pb.ModelProto:
    """A model with a float and a condition as inputs."""
    model = pb.ModelProto(ir_version=8)
    model.opset_import.add(version=17)
    model.graph.name = "nested"
    model.graph.node.extend(nodes)
    model.graph.output.append(_value(output, 1))
    model.graph.input.extend([_value("x", 1), _value("c", 9)])
    return model


def _value(name: str, dtype: int) -> pb.ValueInfoProto:
    value = pb.ValueInfoProto(name=name)
    value.type.tensor_type.elem_type = dtype
    value.type.tensor_type.shape.SetInParent()
    if dtype == 1:
        value.type.tensor_type.shape.dim.add(dim_value=1)
    return value


def _runs(data: bytes) -> None:
    found = model_of_bytes(data).run({"x": _X, "c": _CONDITION})
    assert [array.tolist() for array in found.values()] == [[-3.0]]


def _head(field: int, size: int) -> bytes:
    """What comes before a part of a message that is so long."""
    made = [field << 3 | 2]
    while size > 127:
        made.append(size & 127 | 128)
        size >>= 7
    return bytes([*made, size])


def branches(levels: int) -> None:
    """Run a model of conditions inside one another, as many as that.

    The bytes are put together here, as libraries refuse to write what is nested too deep.
    """
    leaf = pb.GraphProto(node=[pb.NodeProto(op_type="Neg", input=["x"], output=["y"])])
    leaf.output.append(_value("y", 1))
    graph = leaf.SerializeToString()
    either = pb.AttributeProto(name="else_branch", type="GRAPH", g=leaf)
    attribute = pb.AttributeProto(name="then_branch", type="GRAPH").SerializeToString()
    node = pb.NodeProto(op_type="If", input=["c"], output=["y"], attribute=[either])
    around = (  # field, what stands beside it
        (6, attribute),
        (5, node.SerializeToString()),
        (1, pb.GraphProto(output=[_value("y", 1)]).SerializeToString()),
    )
    heads, tails, size = [], [], len(graph)
    for _ in range(levels):
        for field, beside in around:
            heads.append(_head(field, size))
            tails.append(beside)
            size += len(heads[-1]) + len(beside)
    inputs = pb.GraphProto(name="nested", input=[_value("x", 1), _value("c", 9)])
    graph = b"".join([*reversed(heads), graph, *tails, inputs.SerializeToString()])
    opset = pb.OperatorSetIdProto(version=17)
    rest = pb.ModelProto(ir_version=8, opset_import=[opset]).SerializeToString()
    _runs(_head(7, len(graph)) + graph + rest)


def functions(levels: int) -> None:
    """Run a model of functions that call one another, as many as that."""
    call = pb.NodeProto(op_type=f"f{levels}", domain="own", input=["x"], output=["y"])
    model = _model([call], "y")
    model.opset_import.add(domain="own", version=1)
    for number in range(1, levels + 1):
        made = model.functions.add(name=f"f{number}", domain="own", input=["x"], output=["y"])
        made.opset_import.add(version=17)
        made.opset_import.add(domain="own", version=1)
        inner = made.node.add(op_type="Neg", input=["x"], output=["y"])
        if number > 1:
            inner.op_type, inner.domain = f"f{number - 1}", "own"
    _runs(model.SerializeToString())


def _evaluate(text: str, count: int) -> None:
    evaluator = Evaluator(Network())
    evaluator.run(parse_ndl(Source("net.ndl", f"[\n{text}]").whole()))
    evaluator.connect()
    with evaluator.explained():
        evaluator.network.validate()
    evaluator.finish()
    assert len(evaluator.network.nodes) == count + 1


def macros(levels: int) -> None:
    """Evaluate NDL of macros inside one another, as many as that."""
    lines = ["M1(x) = Tanh(x)"]
    lines += [f"M{i}(x) {{ y = M{i - 1}(x) }}" for i in range(2, levels + 1)]
    _evaluate("\n".join([*lines, "f = InputValue(1)", f"z = M{levels}(f)\n"]), 1)


def calls_in_macros(levels: int) -> None:
    """Evaluate NDL of so many macros, each with a call around the next one."""
    lines = ["M1(x) = Tanh(x)"]
    lines += [f"M{i}(x) {{ y = Tanh(M{i - 1}(x)) }}" for i in range(2, levels + 1)]
    _evaluate("\n".join([*lines, "f = InputValue(1)", f"z = M{levels}(f)\n"]), levels)


def calls(levels: int) -> None:
    """Evaluate NDL of calls inside one another, as many as that."""
    _evaluate(f"f = InputValue(1)\nz = {'Tanh(' * levels}f{')' * levels}\n", levels)
