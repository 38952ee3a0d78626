"""The page of an ONNX model: its own nodes, also those unknown here, graphs inside of nodes."""

import numpy as np
import pytest

import opscope
from format_nets import onnx
from opscope.bridges.model.opening import open_model
from opscope.bridges.view.viewing import graph_of
from opscope.framework.base.errors import FormatError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx()
    return tmp_path


def test_nodes_initializers_and_ends(folder):
    model = open_model("g.onnx")
    runs = opscope.from_onnx("g.onnx")
    assert [op.type for op in model.desc.ops] == [n.op for n in runs._model.graph.nodes]
    kinds = {var.name: var.kind for var in model.desc.vars}
    assert {i.name for i in runs.inputs} <= kinds.keys()
    for name, array in model.arrays.items():
        np.testing.assert_array_equal(array, runs._model.arrays[name])
    graph = graph_of(open_model("g.onnx"))
    titles = [item.title for item in graph.items.values()]
    assert {"input", "output"} <= set(titles) and graph.facts[0] == ("file", "g.onnx")
    page = opscope.view("g.onnx")
    assert all(op.type in page.html for op in model.desc.ops)


def test_what_does_not_run_here_is_shown(folder):
    from onnx import TensorProto, helper, save

    then, other = (
        helper.make_graph(
            [helper.make_node(kind, ["x"], ["b"])], kind,
            [], [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
        )
        for kind in ("Relu", "Neg")
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("Strange", ["y"], ["z"], domain="com.acme", beam=4),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g",
        [value("x", TensorProto.FLOAT, ["N", 3]), value("c", TensorProto.BOOL, [])],
        [value("z", TensorProto.FLOAT, None)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), "s.onnx")
    shown = graph_of(open_model("s.onnx"))
    kinds = {item.title: item for item in (*shown.items.values(), *shown.groups.values())}
    assert {"com.acme.Strange", "If", "Relu", "Neg"} <= kinds.keys()
    assert ("beam", "4") in kinds["com.acme.Strange"].facts
    assert any("If" in key or "y" in key for key in kinds["Relu"].path)
    with pytest.raises(FormatError, match=r"(?s)not supported:.*com\.acme\.Strange"):
        opscope.profile("s.onnx")


def test_a_profile_is_of_the_operators_that_it_becomes(folder):
    timed = opscope.profile("g.onnx", rows=3)
    assert timed.rows and timed.seconds > 0 and "3 rows" in timed.what
    assert "forward, 3 rows" in opscope.view("g.onnx", profile=True, rows=3).html


def test_few_whole_numbers_are_attributes(tmp_path):
    b = opscope.NetBuilder("n")
    b.reshape(b.fc(b.input("x", [-1, 6]), size=4), shape=[-1, 2, 2])
    scope = opscope.Scope()
    b.initialize(scope)
    opscope.to_onnx(b, tmp_path / "r.onnx", scope)
    model = open_model(tmp_path / "r.onnx")
    (reshape,) = (op for op in model.desc.ops if op.type == "Reshape")
    assert reshape.attrs["input 1"] == [-1, 2, 2] and all(a.ndim for a in model.arrays.values())


def test_a_damaged_model_is_told(tmp_path):
    (tmp_path / "d.onnx").write_bytes(b"\x08\x08\x3a\x05\x0a\x03")
    with pytest.raises(FormatError, match=r"d\.onnx"):
        opscope.view(tmp_path / "d.onnx")
