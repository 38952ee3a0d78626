"""The page of a net: layout, data, escapes, differences, profiles, the command."""

from __future__ import annotations

import base64
import json
import re
import time
import zlib

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from opscope import NetBuilder, Scope
from opscope.bridges.model.opening import open_model
from opscope.bridges.view.data import page_data
from opscope.bridges.view.difference import mark_difference
from opscope.bridges.view.graph import Edge, Item, NetGraph, Value, nest
from opscope.bridges.view.html import document
from opscope.bridges.view.layout import lay_out
from opscope.bridges.view.viewing import Page, graph_of, view
from opscope.framework.base.errors import VariableError
from opscope.framework.ir.desc import make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.nnet3 import Nnet
from opscope.python_api.cli.main import main
from view_nets import NASTY, deep, nasty, pair


def chain(links: list[tuple[str, str]], groups: dict[str, list[str]] | None = None) -> NetGraph:
    """A graph of items and edges between them, each with a value of its source's name."""
    graph = NetGraph("chain")
    names = dict.fromkeys(name for link in links for name in link)
    for name in names:
        graph.values[name] = Value(name)
        item = Item(name, "relu", name, writes=[("out", [name])])
        nest(graph, item, (groups or {}).get(name, []))
        graph.add(item)
    graph.edges = [Edge(source, target, source) for source, target in links]
    return graph


def data_of(text: str) -> dict:
    """The data in a page."""
    pattern = r'<script id="data" type="application/(json|zlib)">(.*?)</script>'
    ((form, found),) = re.findall(pattern, text, re.S)
    return json.loads(found if form == "json" else zlib.decompress(base64.b64decode(found)))


# -- layout


def test_each_member_and_port_stands_in_one_layer():
    graph = chain([("a", "b"), ("b", "c"), ("c", "d")], {"b": ["g"], "c": ["g"]})
    items, layouts = lay_out(graph)
    for layout in layouts.values():
        placed = [ref for layer in layout.layers for ref, _ in layer if ref >= 0]
        assert sorted(placed) == list(range(len(layout.members) + len(layout.ports)))
    names = [[items[m].key for m in layout.members] for layout in layouts.values()]
    assert names == [["a", "group g", "d"], ["b", "c"]]
    inner = layouts[1]
    a, c = (next(n for n, item in enumerate(items) if item.key == key) for key in "ac")
    assert [source for source, _ in inner.ports] == [a, c] and inner.entries == 1


def test_links_lead_downwards_and_long_ones_stand_in_every_layer_between():
    graph = chain([("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")])
    _, layouts = lay_out(graph)
    row = {ref: at for at, layer in enumerate(layouts[0].layers) for ref, _ in layer}
    through = {number: 0 for number in range(len(layouts[0].links))}
    for layer in layouts[0].layers:
        for ref, _ in layer:
            if ref < 0:
                through[-1 - ref] += 1
    for number, link in enumerate(layouts[0].links):
        assert row[link.source] < row[link.target]
        assert through[number] == row[link.target] - row[link.source] - 1


def test_a_link_across_many_layers_is_a_stub_at_both_ends():
    names = [f"n{number}" for number in range(20)]
    links = [*zip(names, names[1:], strict=False), ("n0", "n19")]
    _, layouts = lay_out(chain(links))
    assert len(layouts[0].links) == 19
    members = layouts[0].members
    stubs = [(members[member], leaves, other) for member, leaves, other, _ in layouts[0].stubs]
    assert stubs == [(members[0], True, members[19]), (members[19], False, members[0])]


@pytest.mark.parametrize("deep", [1, 3])
def test_hundreds_of_branches_stand_on_shelves(deep):
    """What reads or feeds hundreds is cut off by stubs, and the rest stands row below row."""
    branches = [[f"b{n}.{at}" for at in range(deep)] for n in range(300)]
    links = [("x", branch[0]) for branch in branches]
    links += [pair for branch in branches for pair in zip(branch, branch[1:], strict=False)]
    _, layouts = lay_out(chain([*links, *((branch[-1], "sum") for branch in branches)]))
    layout = layouts[0]
    assert len(layout.links) == 300 * (deep - 1) and len(layout.stubs) == 4 * 300
    assert max(x for layer in layout.layers for _, x in layer) < 120 * deep**0.5 * 25
    assert max(map(len, layout.layers)) < 45 * deep and len(layout.layers) > 7 * deep
    row = {ref: at for at, layer in enumerate(layout.layers) for ref, _ in layer}
    assert sorted(row) == list(range(len(layout.members)))
    assert all(row[link.target] == row[link.source] + 1 for link in layout.links)
    for layer in layout.layers:
        places = [x for _, x in layer]
        assert places == sorted(places)


def test_circles_are_cut_where_a_value_of_another_time_is_read():
    graph = chain([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")])
    graph.edges[1].delayed = True
    items, layouts = lay_out(graph)
    back = [link for link in layouts[0].links if link.back]
    keys = [items[member].key for member in layouts[0].members]
    assert [(keys[link.source], keys[link.target]) for link in back] == [("b", "c")]


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_with_groups_are_laid_out(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 40))
    links = {tuple(rng.integers(0, count, 2).tolist()) for _ in range(count * 2)}
    groups = {str(n): [f"g{n % 3}", f"h{n % 2}"][: int(rng.integers(0, 3))] for n in range(count)}
    graph = chain([(str(a), str(b)) for a, b in links], groups)
    data = page_data(graph, {})
    seen = [member for group in data["groups"].values() for member in group["m"]]
    assert sorted(seen) == list(range(1, len(data["items"])))
    for group in data["groups"].values():
        most = len(group["m"]) + len(group["p"])
        assert all(0 <= end < most for link in group["k"] for end in link[:2])
        refs = [ref for layer in group["y"] for ref in layer[::2]]
        assert sorted(ref for ref in refs if ref >= 0) == list(range(most))


# -- the document


def test_the_page_asks_for_nothing_and_forbids_all_else():
    text = view(pair()[0]).html
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of SVG's elements
    assert not re.search(r"\b(src|href)=", text.partition('<script id="data"')[0])


@pytest.mark.parametrize("part", range(len(NASTY)))
def test_texts_of_files_cannot_end_the_data(part):
    text = view(nasty()).html
    assert text.count("</script>") == 2 and text.count("<script") == 2
    if NASTY[part] != "@@DATA@@":  # which is a text like any other once the page is put together
        assert NASTY[part] not in text
    data = data_of(text)
    told = [name for name, *_ in data["values"]]
    assert any(NASTY[part].encode("utf-8", "replace").decode() in name for name in told)


def test_names_of_many_parts_and_long_texts_are_cut():
    net = OpList("net")
    name = "/".join("a" * 20_000)
    net.vars = [make_var("x", (2,), "float32", 1)]
    net.ops = [make_op("relu", {"x": "x"}, {"out": f"{name}/{part}"}) for part in "bc"]
    net.metadata = {"text": "a" * 1_000_000}
    data = data_of(view(net).html)
    assert len(data["groups"]) == 2  # the net, and one group: those in between held one each
    assert max(len(text) for _, text in data["facts"]) == 4000


def test_a_damaged_title_is_shown():
    graph = NetGraph("a\ud800<b>\n")
    text = document(page_data(graph, {}))
    assert "<title>a &lt;b&gt; </title>" in text
    text.encode()


def test_a_page_of_2000_operators_is_made_quickly():
    net, arrays = deep(2000)
    begin = time.process_time()
    opened = open_model(net)
    text = document(page_data(graph_of(opened), arrays))
    spent = time.process_time() - begin
    assert len(data_of(text)["items"]) > 2000
    assert len(text.encode()) < 400_000
    assert spent < 5.0  # of processor time; 0.7 s is usual


def test_large_pages_are_compressed(monkeypatch):
    """The same data, in base64 that no text can end; small ones stay JSON."""
    net, arrays = deep(60)
    data = page_data(graph_of(open_model(net)), arrays)
    plain = document(data)
    monkeypatch.setattr("opscope.bridges.view.html._PACKED_FROM", 0)
    packed = document(data)
    assert data_of(packed) == data_of(plain) and len(packed) < len(plain) / 1.3
    assert 'type="application/zlib"' in packed and 'type="application/json"' in plain


def test_the_page_is_shown_in_a_notebook_in_a_frame():
    page = view(pair()[0])
    shown = page._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and 'sandbox="allow-scripts"' in shown
    assert "<script" not in shown and "KiB" in repr(page)


# -- differences


def items_of(page: Page) -> dict[str, dict]:
    return {item.get("n") or item["t"]: item for item in data_of(page.html)["items"]}


def test_a_difference_names_what_was_added_removed_and_changed():
    old, new = pair()
    items = items_of(view(new, against=old))
    changes = {name: item["c"] for name, item in items.items() if "c" in item}
    assert changes == {"h": "changed", "extra": "added", "gone": "removed", "y": "changed"}
    assert items["h"]["d"] == ["was relu"]
    assert items["y"]["d"] == ["reads: gone → extra"]


def test_a_difference_to_itself_is_empty():
    old, _ = pair()
    assert not any("c" in item for item in items_of(view(old, against=old)).values())


def test_numbers_that_differ_are_told():
    b = NetBuilder("net")
    b.fc(b.input("x", [-1, 2]), size=2, name="y")
    first = {"y.w": np.zeros((2, 2), "f"), "y.b": np.zeros(2, "f")}
    second = first | {"y.w": np.array([[0, 0], [0, 0.5]], "f")}
    graph, other = graph_of(open_model(b)), graph_of(open_model(b))
    mark_difference(graph, second, other, first)
    assert graph.items["y"].changes == ["y.w: 1 of 4 numbers differ, by at most 0.5"]
    assert graph.values["y.w"].change == "changed" and graph.values["y.b"].change == ""


def test_equal_nan_are_no_difference():
    b = NetBuilder("net")
    b.fc(b.input("x", [-1, 2]), size=2, name="y")
    values = {"y.w": np.full((2, 2), np.nan, "f"), "y.b": np.zeros(2, "f")}
    graph, other = graph_of(open_model(b)), graph_of(open_model(b))
    mark_difference(graph, values, other, values)
    assert graph.items["y"].change == ""


def test_nets_of_different_kinds_are_not_compared():
    nnet = Nnet.from_config_text("input-node name=input dim=4\noutput-node name=o input=input\n")
    with pytest.raises(VariableError, match=r"not of one kind \(operators, nnet3\)"):
        view(pair()[0], against=nnet)


# -- profiles


def saved(tmp_path, b: NetBuilder, **feed) -> str:
    scope = Scope()
    b.run(scope, feed=feed, need_backward=False)
    opscope.save(b, scope, tmp_path / "net.pb")
    return str(tmp_path / "net.pb")


def test_a_profile_tells_time_and_memory_of_every_operator(tmp_path):
    path = saved(tmp_path, pair()[0], x=np.ones((1, 4), "f"))
    data = data_of(view(path, profile=True, rows=50).html)
    told = [item for item in data["items"] if "r" in item and "m" not in item]
    assert told and all(item["s"] > 0 for item in told)
    assert max(item["b"] for item in told) == 50 * 4 * 4
    assert data["profiled"].startswith("forward, 50 rows of random input")


def test_profiles_of_networks_of_kaldis():
    text = """
    input-node name=input dim=4
    component name=a type=AffineComponent input-dim=12 output-dim=3
    component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
    component name=r type=RectifiedLinearComponent dim=3
    component-node name=r component=r input=a
    output-node name=output input=r objective=linear
    """
    nnet = Nnet.from_config_text("\n".join(line.strip() for line in text.splitlines()), 1)
    items = items_of(view(nnet, profile=True))
    assert items["a"]["s"] > 0 and items["r"]["s"] > 0
    assert "s" not in items["input"]


def test_profiles_of_networks_of_cntks(tmp_path):
    path = tmp_path / "net.ndl"
    path.write_text(
        "x=Input(4, tag=feature)\nW=Parameter(3, 4)\nt=Times(W, x)\nz=Sigmoid(t, tag=output)\n"
    )
    items = items_of(view(path, profile=True))
    assert items["t"]["s"] > 0 and items["z"]["s"] > 0


def test_a_net_without_values_has_no_profile():
    with pytest.raises(VariableError, match="no value of"):
        b = NetBuilder("net")
        b.fc(b.input("x", [-1, 2]), size=2, name="y")
        view(b, profile=True)


# -- numbers


def test_numbers_stand_in_what_computes_them():
    numbers = {"h": 0.5, "y": float("nan")}
    page = view(pair()[0], numbers=numbers, numbers_are="largest error")
    items = items_of(page)
    assert {name: item["e"] for name, item in items.items() if "e" in item} == {
        "h": 0.5,
        "y": "nan",
    }
    assert data_of(page.html)["numbers"] == "largest error"
    with pytest.raises(VariableError, match="nothing computes 'g'"):
        view(pair()[0], numbers={"g": 1.0})


# -- the command


def test_the_command_writes_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path, pair()[0], x=np.ones((1, 4), "f"))
    done = CliRunner().invoke(main, ["view", path])
    assert done.exit_code == 0 and done.output.startswith("net.pb.html: ")
    assert data_of((tmp_path / "net.pb.html").read_text())["title"] == "net.pb"
    done = CliRunner().invoke(main, ["view", path, "-o", "-", "--against", path, "--profile"])
    assert data_of(done.output)["compared"] == "net.pb"


def test_the_command_refuses_what_has_no_effect(tmp_path):
    done = CliRunner().invoke(main, ["view", "net.pb", "--rows", "3"])
    assert done.exit_code == 2 and "--rows is for --profile" in done.output
    done = CliRunner().invoke(main, ["view", str(tmp_path / "missing.pb")])
    assert done.exit_code == 1 and "missing.pb" in done.output
