"""`opscope profile`: what it counts, its table, trace and flame graph."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
from click.testing import CliRunner

import opscope
from kaldi_data import need
from opscope.bridges.profile.profiling import Profile
from opscope.bridges.profile.timed import Timed
from opscope.python_api.cli.main import main

ROWS = [
    Timed("a", "matmul", ("layer", "inner"), 3e-3, 4096),
    Timed("b", "relu", ("layer", "inner"), 1e-3, 2048),
    Timed("c", "matmul", ("layer",), 4e-3, 1 << 20),
    Timed("d", "softmax", (), 2e-3, 10),
]


@pytest.fixture
def known() -> Profile:
    return Profile("net", "as it was", ROWS)


def test_the_table(known):
    lines = known.table().splitlines()
    assert lines[0] == "net: as it was; 10 ms in all"
    assert [line.split()[-2] for line in lines[2:]] == ["c", "a", "d", "b"]
    assert lines[2].split()[:3] == ["4", "ms", "40.0%"]
    by_type = known.table("type").splitlines()[2:]
    assert by_type[0].split() == ["7", "ms", "70.0%", "1.0", "MiB", "2", "matmul"]
    assert known.table("group").splitlines()[2].split()[-2:] == ["3", "layer"]
    assert known.table(most=1).splitlines()[-1].split() == ["6", "ms", "60.0%", "3", "more"]
    with pytest.raises(opscope.OpscopeError, match="by='op': one of 'row', 'type', 'group'"):
        known.table("op")


def test_the_trace(known, tmp_path):
    known.save(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    spans = {event["name"]: (event["ts"], event["ts"] + event["dur"]) for event in events}
    expected = {
        **{"layer": (0, 8000), "inner": (0, 4000), "a": (0, 3000), "b": (3000, 4000)},
        **{"c": (4000, 8000), "d": (8000, 10000)},
    }
    assert spans.keys() == expected.keys()
    for name, span in expected.items():
        assert spans[name] == pytest.approx(span), name
    assert all(event["ph"] == "X" for event in events)


def test_the_flame_graph(known, tmp_path):
    known.save(tmp_path / "f.svg")
    root = ElementTree.parse(tmp_path / "f.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    found = {}
    for group in root.iter(f"{space}g"):
        rect = group.find(f"{space}rect")
        found[group.find(f"{space}title").text] = {
            k: float(rect.get(k)) for k in ("x", "y", "width")
        }
    assert found["net: 10 ms, 100.0%"]["width"] == 1000
    assert found["layer: 8 ms, 80.0%"]["width"] == pytest.approx(800)
    a, b = found["a (matmul): 3 ms, 30.0%"], found["b (relu): 1 ms, 10.0%"]
    assert (a["x"], a["width"], b["x"]) == pytest.approx((0, 300, 300)) and a["y"] == b["y"]
    assert found["inner: 4 ms, 40.0%"]["y"] > a["y"]


def test_a_net_of_operators(tmp_path):
    b = opscope.NetBuilder("n")
    x = b.input("x", [-1, 64])
    b.softmax(b.fc(b.fc(x, size=256, activation="relu"), size=10))
    scope = opscope.Scope()
    b.initialize(scope)
    found = opscope.profile(b, scope=scope, rows=128)
    assert {row.kind for row in found.rows} >= {"affine", "softmax"}
    assert found.seconds > 0 and all(row.seconds > 0 for row in found.rows)
    largest = max(found.rows, key=lambda row: row.bytes)
    assert largest.bytes >= 128 * 256 * 4
    assert "128 rows of random input" in str(found)
    with pytest.raises(opscope.OpscopeError, match="rows=0"):
        opscope.profile(b, scope=scope, rows=0)
    with pytest.raises(opscope.OpscopeError, match=r"x\.png: a profile is written as \.json"):
        found.save(tmp_path / "x.png")


def test_the_command_on_a_network_of_kaldi(tmp_path):
    path = str(need("trained", "tdnn", "model.raw"))
    targets = [str(tmp_path / name) for name in ("t.json", "f.svg", "t.txt")]
    outputs = [word for target in targets for word in ("-o", target)]
    done = CliRunner().invoke(main, ["profile", path, "--rows", "20", "--by", "type", *outputs])
    assert done.exit_code == 0, done.output
    assert "20 frames of random input" in done.output and "Affine" in done.output
    names = {event["name"] for event in json.loads(open(targets[0]).read())["traceEvents"]}
    assert {"tdnn2.affine", "output.affine"} <= names
    assert open(targets[1]).read().startswith("<svg ")
    missing = CliRunner().invoke(main, ["profile", str(tmp_path / "no.pb")])
    assert missing.exit_code == 1


def test_the_members_of_a_loop_have_times_of_their_own():
    b = opscope.NetBuilder("members")
    b.scale(b.erf(b.scale(b.input("x", [400, 500]), scale=2.0, name="before")), scale=0.5)
    found = {row.name or row.kind: row.seconds for row in opscope.profile(b).rows}
    erf = next(seconds for name, seconds in found.items() if "erf" in name)
    assert all(seconds < erf / 2 for seconds in found.values() if seconds != erf), found
