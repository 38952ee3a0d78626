"""What a page shows: items, edges and groups of nets of all front ends; statistics."""

from __future__ import annotations

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope, Sequences
from opscope.bridges.model.opening import open_model
from opscope.bridges.view.cntk_nets import _parts
from opscope.bridges.view.data import page_data
from opscope.bridges.view.graph import GROUP, Item, NetGraph, drop_small_groups, nest
from opscope.bridges.view.numbers import statistics
from opscope.bridges.view.viewing import graph_of
from opscope.framework.base.errors import FormatError, OpscopeError, VariableError
from opscope.framework.ir.desc import make_op, make_var
from opscope.framework.ir.op_list import OpList, View
from opscope.nnet3 import Nnet


def edges(graph: NetGraph) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in graph.edges}


def small() -> NetBuilder:
    b = NetBuilder("small")
    h = b.fc(b.input("x", [-1, 4]), size=3, activation="relu", name="h")
    b.softmax(h, name="y")
    return b


def test_operators_inputs_and_what_flows_between():
    graph = graph_of(open_model(small()))
    assert list(graph.items) == ["input x", "h@INNER@LINEAR", "h", "y"]
    assert edges(graph) == {
        ("input x", "h@INNER@LINEAR"),
        ("h@INNER@LINEAR", "h"),
        ("h", "y"),
    }
    affine = graph.items["h@INNER@LINEAR"]
    assert (affine.title, affine.kind) == ("affine", "trained")
    assert affine.holds == [("w", ["h.w"]), ("b", ["h.b"])]
    assert dict(affine.facts)["num_flatten_dims"] == "-1"
    assert "test_view_graphs.py" in dict(affine.facts)["written at"]
    assert graph.values["h.w"].type == "float32[4, 3]"


def test_operators_of_a_layer_are_a_group():
    graph = graph_of(open_model(small()))
    assert [group.title for group in graph.groups.values()] == ["h"]
    assert [len(item.path) for item in graph.items.values()] == [0, 1, 1, 0]


def test_boxes_say_windows_and_the_shapes_of_parameters_by_name(tmp_path):
    b = NetBuilder("n")
    h = b.conv2d(b.input("x", [-1, 3, 32, 32]), 8, 3, stride=2, name="h")
    b.max_pool2d(h, kernel=[2, 3], name="p")
    graph = graph_of(open_model(b))
    assert graph.items["h"].lines == ["stride 2", "w 8 × 3 × 3 × 3", "b 8"]
    assert graph.items["p"].lines == ["kernel 2 × 3"]
    scope = Scope()
    b.initialize(scope)
    opscope.to_onnx(b, tmp_path / "n.onnx", scope)
    graph = graph_of(open_model(tmp_path / "n.onnx"))
    (conv,) = (item for item in graph.items.values() if item.title == "Conv")
    assert conv.lines[0] == "kernel 3 × 3, stride 2" and conv.lines[1].endswith(" 8 × 3 × 3 × 3")
    shapes = {value.type for value in graph.values.values() if value.kind != "parameter"}
    assert any("[?, 8, 15, 15]" in shape for shape in shapes), "inferred, not in the file"


def test_layers_nest_by_the_parts_of_their_names():
    b = NetBuilder("n")
    x = b.input("x", [-1, 5, 8])
    b.transformer_encoder(x, layers=2, heads=2, name="encoder")
    graph = graph_of(open_model(b))
    (query,) = (item for item in graph.items.values() if item.name == "encoder.1.attention.q")
    titles = [graph.groups[key].title for key in query.path]
    assert titles == ["encoder", "encoder.1", "attention"]
    page_data(graph, {})
    assert query.short == "q"


def test_a_name_that_is_all_over_the_net_is_no_group():
    net = OpList("net")
    net.vars = [make_var("x", (2,), "float32", 1)]
    names = ["x", *(name for at in range(4) for name in (f"p.Add.{at}", f"l{at}.y"))]
    net.ops = [
        make_op("relu", {"x": a}, {"out": b}) for a, b in zip(names, names[1:], strict=False)
    ]
    assert not graph_of(open_model(net)).groups
    net.ops[1::2] = [make_op("relu", {"x": "x"}, {"out": f"l{at}.y"}) for at in range(4)]
    assert [group.title for group in graph_of(open_model(net)).groups.values()] == ["p.Add"]


def test_gradients_and_updates_are_groups():
    b = small()
    b.backward_from(b.reduce_mean(b.cross_entropy("y", b.input("label", [-1], dtype="int64"))))
    b.add_optimization(0.1, "sgd")
    graph = graph_of(open_model(b))
    kinds = {"backward": "group gradients", "optimizer": "group updates"}
    for kind, group in kinds.items():
        items = [item for item in graph.items.values() if item.kind == kind]
        assert items and all(item.path[0] == group for item in items)
    data = page_data(graph, {})
    aside = [n for n, item in enumerate(data["items"]) if item["t"] in ("gradients", "updates")]
    root = data["groups"][0]
    drawn = {root["m"][end] for link in root["k"] for end in link[:2]}
    assert len(aside) == 2 and not drawn & set(aside) and not set(data["open"]) & set(aside)
    assert not any(data["groups"][number]["p"] for number in aside)
    assert all(data["groups"][number]["s"] for number in aside)
    told = dict(graph.facts)["operators"]
    assert "forward" in told and "gradients" in told and "2 updates" in told


def test_a_variable_that_is_overwritten_has_several_values():
    net = OpList("net")
    net.vars = [make_var(name, (2,), "float32", kind) for name, kind in (("x", 1), ("a", 0))]
    net.ops = [
        make_op("relu", {"x": "x"}, {"out": "a"}),
        make_op("tanh", {"x": "a"}, {"out": "a"}),
        make_op("exp", {"x": "a"}, {"out": "b"}),
    ]
    graph = graph_of(open_model(net))
    assert list(graph.items) == ["input x", "a", "a#2", "b"]
    assert edges(graph) == {("input x", "a"), ("a", "a#2"), ("a#2", "b")}


def recurrent() -> NetBuilder:
    b = NetBuilder("tagger")
    x = b.input("x", [-1, 4], levels=1)
    with b.recurrent("loop") as step:
        row, before = step.input(x), step.memory(3)
        new = b.fc([row, before], size=3, activation="tanh", name="new")
        step.update(before, new)
        states = step.output(new)
    b.softmax(states, name="y")
    return b


def test_a_step_net_is_a_group_that_its_inputs_reach_into():
    graph = graph_of(open_model(recurrent()))
    (loop,) = [group for group in graph.groups.values() if group.title == "recurrent"]
    inside = {key for key, item in graph.items.items() if loop.key in item.path}
    assert len(inside) == 1, "a layer is whole"
    assert {target for source, target in edges(graph) if source == "input x"} & inside
    late = [(e.source, e.target) for e in graph.edges if e.delayed]
    assert late and all(source in inside and target in inside for source, target in late)
    assert {source for source, target in edges(graph) if target == "y"} <= inside


NNET3 = """
input-node name=input dim=4
component name=l1.affine type=AffineComponent input-dim=8 output-dim=3
component-node name=l1.affine component=l1.affine input=Append(input, Offset(input, -2))
component name=l1.relu type=RectifiedLinearComponent dim=3
component-node name=l1.relu component=l1.relu input=l1.affine
component name=r.affine type=AffineComponent input-dim=6 output-dim=3
component-node name=r.affine component=r.affine input=Append(l1.relu, IfDefined(Offset(r.tanh, -1)))
component name=r.tanh type=TanhComponent dim=3
component-node name=r.tanh component=r.tanh input=r.affine
output-node name=output input=r.tanh objective=linear
"""


def test_a_network_of_kaldis():
    graph = graph_of(open_model(Nnet.from_config_text(NNET3, 1)))
    assert [group.title for group in graph.groups.values()] == ["l1", "r"]
    affine = graph.items["r.affine"]
    assert affine.lines[0] == "◂ l1.relu, IfDefined(r.tanh[-1])"
    assert dict(affine.facts)["component"] == "r.affine"
    assert [(slot, keys) for slot, keys in affine.holds] == [
        ("linear_params", ["r.affine/linear_params"]),
        ("bias_params", ["r.affine/bias_params"]),
    ]
    delayed = [(e.source, e.target) for e in graph.edges if e.delayed]
    assert delayed == [("r.tanh", "r.affine")]
    assert dict(graph.facts)["context"] == "left 2, right 0"


NDL = """
load=ndlMacroDefine
run=net
ndlMacroDefine=[
    Layer(x, in, out)
    {
        W=Parameter(out, in)
        b=Parameter(out, 1)
        t=Times(W, x)
        z=Plus(t, b)
        act=Sigmoid(z)
    }
]
net=[
    features=Input(4, tag="feature")
    L1=Layer(features, 4, 3)
    L2=Layer(L1, 3, 2)
    labels=Input(2, tag="label")
    ce=CrossEntropyWithSoftmax(labels, L2, tag="criterion")
]
"""


def test_macros_of_ndl_are_groups_and_parameters_stand_in_their_operators(tmp_path):
    path = tmp_path / "net.ndl"
    path.write_text(NDL)
    graph = graph_of(open_model(path))
    assert [group.title for group in graph.groups.values()] == ["L1", "L2"]
    times = graph.items["L1.t"]
    assert (times.title, times.kind, times.holds) == ("Times", "trained", [("input 0", ["L1.W"])])
    assert times.reads == [("input 1", ["features"])]
    assert "L1.W" not in graph.items
    assert "net.ndl:9:" in dict(times.facts)["written at"]
    assert dict(graph.facts)["criterion"] == "ce"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("z", ["z"]),
        ("z.x.x", ["z.x.x"]),
        ("z.x.lstm.it", ["z.x", "lstm", "it"]),
        ("z.x.s._.p.PlusArgs[0].PlusArgs[1]", ["z.x", "s", "p", "PlusArgs[1]"]),
        ("L1.lin.W", ["L1", "lin", "W"]),
        (".x", [".x"]),
    ],
)
def test_parts_of_names_of_brainscript(name, parts):
    assert _parts(name) == parts


def test_a_group_of_one_group_is_merged_with_it():
    graph = NetGraph("net")
    for number in range(3):
        item = Item(f"a.b.{number}", "relu")
        nest(graph, item, ["a", "b"])
        graph.add(item)
    alone = graph.add(Item("c.d", "relu"))
    nest(graph, alone, ["c"])
    drop_small_groups(graph)
    assert [group.title for group in graph.groups.values()] == ["a.b"]
    assert [len(item.path) for item in graph.items.values()] == [1, 1, 1, 0]
    assert graph.groups["group a/b"].kind == GROUP


# -- statistics


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "bool"])
def test_statistics_are_those_of_numpy(dtype):
    array = (np.random.default_rng(1).standard_normal((300, 7)) * 3 + 1).astype(dtype)
    array[:9] = 0
    found = statistics(array)
    wide = array.astype(np.float64)
    assert (found["shape"], found["count"], found["wrong"]) == ([300, 7], 2100, 0)
    assert found["mean"] == pytest.approx(wide.mean(), rel=1e-6)
    assert found["std"] == pytest.approx(wide.std(), rel=1e-6)
    assert (found["min"], found["max"]) == pytest.approx((wide.min(), wide.max()), rel=1e-6)
    assert found["zeros"] == np.count_nonzero(array == 0)
    assert found["bins"] == np.histogram(wide, 24)[0].tolist()


def test_statistics_far_from_zero_are_exact():
    array = 1e8 + np.random.default_rng(1).standard_normal(1000)
    assert statistics(array)["std"] == pytest.approx(array.std(), rel=1e-6)


def test_statistics_leave_out_what_is_no_number():
    array = np.array([1.0, np.nan, np.inf, 3.0, 0.0])
    found = statistics(array)
    assert (found["wrong"], found["mean"], found["zeros"]) == (2, pytest.approx(4 / 3), 1)
    assert "bins" not in statistics(np.full(3, np.nan))
    assert statistics(np.zeros((0, 3)))["count"] == 0


def test_a_large_array_has_a_histogram_of_a_sample():
    found = statistics(np.random.default_rng(1).standard_normal(1_000_000).astype(np.float32))
    assert sum(found["bins"]) == found["sample"] <= 1 << 16


def test_numbers_near_the_largest_have_no_infinite_statistics():
    found = statistics(np.array([-1.7e308, 1.7e308]))
    assert found["std"] is None and found["max"] == 1.7e308


# -- what can be opened


def test_values_come_from_files_and_scopes(tmp_path):
    b, scope = small(), Scope()
    b.run(scope, feed={"x": np.ones((1, 4))}, fetch=["y"], need_backward=False)
    opscope.save(b, scope, tmp_path / "small.pb")
    wanted = {"h.w", "h.b"}
    assert set(open_model(tmp_path / "small.pb").arrays) == wanted
    assert set(open_model(b, scope).arrays) == wanted
    assert set(open_model(opscope.load(tmp_path / "small.pb")).arrays) == wanted
    (tmp_path / "small.safetensors").unlink()
    model = open_model(tmp_path / "small.pb")
    assert not model.arrays
    assert ("file", "small.pb, without parameters") in graph_of(model).facts


def test_a_saved_network_of_kaldis_is_one_again(tmp_path):
    nnet = Nnet.from_config_text(NNET3, 1)
    opscope.save_nnet(nnet, tmp_path / "net.pb")
    graph = graph_of(open_model(tmp_path / "net.pb"))
    assert edges(graph) == edges(graph_of(open_model(nnet)))


def test_what_is_no_net_is_refused(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("hello")
    with pytest.raises(FormatError, match="text.txt: neither a net nor a file"):
        open_model(text)
    with pytest.raises(FormatError, match="missing.pb"):
        open_model(tmp_path / "missing.pb")
    with pytest.raises(VariableError, match="want a net"):
        open_model(3)
    archive = tmp_path / "a.ark"
    archive.write_bytes(b"key \0BFM \4\1\0\0\0\4\1\0\0\0\0\0\0\0")
    with pytest.raises(FormatError, match="Kaldi archive: it holds no net"):
        open_model(archive)
    config = tmp_path / "two.cntk"
    config.write_text('command=a\na=[action="dumpNode"]\n')
    with pytest.raises(FormatError, match="describes 0 networks, one is needed"):
        open_model(config)


def test_sequences_of_the_builder_run(tmp_path):
    b, scope = recurrent(), Scope()
    feed = {"x": Sequences.from_list([np.ones((2, 4), "f")])}
    b.run(scope, feed=feed, fetch=["y"], need_backward=False)
    assert len(open_model(b, scope).arrays) >= 2


def test_one_of_several_networks_is_chosen(tmp_path):
    builder = """[action="train" SimpleNetworkBuilder=[
        layerSizes=%s
        trainingCriterion=SquareError
        evalCriterion=SquareError
        layerTypes=Sigmoid
    ] SGD=[] reader=[]]"""
    path = tmp_path / "two.cntk"
    text = "command=a:b\na=" + builder % "3:2" + "\nb=" + builder % "4:2"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"describes 2 networks \(a, b\): say which"):
        open_model(path)
    graph = graph_of(open_model(path, network="b"))
    assert any("[?, 4]" in value.type for value in graph.values.values())
    with pytest.raises(FormatError, match="has no network 'c'; it has a, b"):
        open_model(path, network="c")
    saved = tmp_path / "net.pb"
    saved.write_bytes(b"")
    with pytest.raises(FormatError, match="no config of CNTK's, so it has no network 'a'"):
        open_model(saved, network="a")


def test_views_are_read_from_those_that_wrote_their_rectangles():
    net = OpList("net")
    net.vars = [
        make_var("x", (4, 2), "float32", 1),
        make_var("m", (4, 2), "float32"),
        make_var("top", (2, 2), "float32", view=View("m", 0, 2, 0, -1)),
        make_var("bottom", (2, 2), "float32", view=View("m", 2, 4, 0, -1)),
        make_var("row", (1, 2), "float32", view=View("m", 1, 2, 0, 2)),
    ]
    net.ops = [
        make_op("relu", {"x": "x"}, {"out": "m"}),
        make_op("tanh", {"x": "x"}, {"out": "top"}),
        make_op("exp", {"x": "row"}, {"out": "a"}),
        make_op("exp", {"x": "bottom"}, {"out": "b"}),
        make_op("exp", {"x": "m"}, {"out": "c"}),
    ]
    found = {pair for pair in edges(graph_of(open_model(net))) if pair[0] != "input x"}
    assert found == {("top", "a"), ("m", "b"), ("top", "c"), ("m", "c")}


# -- a script of CNTK's alone

BRAINSCRIPT = """
features = Input{40}
labels = Input{10}
z = Sequential (DenseLayer{8, activation=ReLU} : DenseLayer{10}) (features)
ce = CrossEntropyWithSoftmax(labels, z)
featureNodes = (features) ; labelNodes = (labels) ; criterionNodes = (ce) ; outputNodes = (z)
"""
ALONE = """
load=macros
run=net
macros=[
    layer(in, out, x) = [ W=Parameter(out, in) ; t=Times(W, x) ; y=Sigmoid(t) ]
]
net=[
    features=Input(4)
    h=layer(4, 3, features)
    OutputNodes=(h)
]
"""


@pytest.mark.parametrize(
    "text", [BRAINSCRIPT, f"BrainScriptNetworkBuilder = {{{BRAINSCRIPT}}}\n"], ids=["bare", "named"]
)
def test_a_file_of_brainscript_alone(text, tmp_path):
    path = tmp_path / "net.bs"
    path.write_text(text)
    graph = graph_of(open_model(path))
    assert {"features", "labels", "z", "ce"} <= graph.items.keys()
    (tmp_path / "wrong.bs").write_text(text.replace("DenseLayer{10}", "DenseLayr{10}"))
    with pytest.raises(OpscopeError, match="unknown identifier 'DenseLayr'"):
        open_model(tmp_path / "wrong.bs")
    if text == BRAINSCRIPT:
        (tmp_path / 'a" b.bs').write_text(text)
        with pytest.raises(FormatError, match="quotes in its name"):
            open_model(tmp_path / 'a" b.bs')
    (tmp_path / "library.bs").write_text("f(x) = x + 1\n")
    with pytest.raises(FormatError, match="describes 0 networks"):
        open_model(tmp_path / "library.bs")


def test_a_file_of_ndl_alone(tmp_path):
    path = tmp_path / "net.ndl"
    path.write_text(ALONE)
    graph = graph_of(open_model(path))
    assert {"features", "h.t", "h.y"} <= graph.items.keys()
