"""Two models layer by layer: equal ones, where others part ways, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opscope
from kaldi_data import need
from opscope import FormatError, VariableError
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.nnet3 import Nnet
from opscope.python_api.cli.main import main


def _save(path: Path, activation: str = "relu", size: int = 4) -> Path:
    b = opscope.NetBuilder("small")
    h = b.fc(b.input("x", [-1, size]), size=5, activation="tanh", name="first")
    h = b.fc(h, size=5, activation=activation, name="second")
    b.softmax(b.fc(h, size=3, name="scores"), name="y")
    scope = opscope.Scope()
    feed = {"x": np.ones((2, size), "f")}
    b.run(scope, feed=feed, need_backward=False, context=opscope.OpContext(seed=0))
    opscope.save(b, scope, path)
    return path


def test_saved_nets(tmp_path):
    one, same = _save(tmp_path / "a.pb"), _save(tmp_path / "b.pb")
    found = opscope.compare(one, same)
    assert found.first is None and "no layer differs" in str(found)
    assert {layer.error for layer in found.layers} == {0.0}
    other = _save(tmp_path / "c.pb", "sigmoid")
    found = opscope.compare(one, other)
    assert found.first is not None and found.first.name == "second"
    errors = found.numbers()
    assert errors["first"] == 0 and errors["second"] > 0.1 and errors["y"] > 0
    assert "first above the bound" in str(found) and str(found).endswith("part ways at second")
    result = CliRunner().invoke(
        main, ["compare", str(one), str(other), "--page", str(tmp_path / "p")]
    )
    assert result.exit_code == 1 and "they part ways at second" in result.output
    assert "error" in (tmp_path / "p").read_text()
    assert CliRunner().invoke(main, ["compare", str(one), str(same)]).exit_code == 0


@pytest.mark.parametrize("name", ["tdnn", "tdnnf", "lstmp", "cnn"])
def test_networks_of_kaldi(name, tmp_path):
    path = need("trained", name, "model.raw")
    found = opscope.compare(path, need("trained", name, "model.txt"))
    assert len(found.layers) > 5 and found.layers[-1].name == "output"
    assert found.first is None or found.first.error < 1e-3  # text has fewer digits
    nnet = Nnet.read(path)
    affine = [n for n in nnet.nodes if n.kind == "component" and "Affine" in _type(nnet, n)][-1]
    component = nnet.components[affine.component]
    component.vectorize()
    values = component.vectorize()
    values[0] += 1.0
    component.unvectorize(values)
    nnet.write(tmp_path / "changed.raw")
    found = opscope.compare(path, tmp_path / "changed.raw")
    assert found.first is not None and found.first.name == affine.name
    if name == "tdnn":
        page = opscope.view(path, numbers=found.numbers(), numbers_are="error")
        assert affine.name in page.html


def _type(nnet: Nnet, node) -> str:
    return nnet.components[node.component].type


def _onnx(path: Path, factor: float) -> Path:
    g = Graph("g")
    w = g.constant(np.full((4, 3), factor), "w", np.float32)
    g.output(g.node("MatMul", [g.input("x", np.float32, ["N", 4]), w], f"y{factor:g}"), np.float32)
    path.write_bytes(model_bytes(g))
    return path


def test_onnx_by_outputs(tmp_path):
    net = _save(tmp_path / "a.pb")
    opscope.to_onnx(str(net), str(tmp_path / "a.onnx"))
    found = opscope.compare(net, tmp_path / "a.onnx", bound=1e-6)
    assert [layer.name.split(" / ")[0] for layer in found.layers] == ["y"]
    assert found.first is None
    one, two = _onnx(tmp_path / "1.onnx", 1), _onnx(tmp_path / "2.onnx", 2)
    assert opscope.compare(one, one).first is None
    found = opscope.compare(one, two)
    assert found.first is not None and found.first.name == "y1 / y2"


def test_what_is_not_comparable_is_refused(tmp_path):
    one, other = _save(tmp_path / "a.pb"), _save(tmp_path / "b.pb", size=6)
    with pytest.raises(VariableError, match=r"takes x float32\[-1, 4\], .*x float32\[-1, 6\]"):
        opscope.compare(one, other)
    with pytest.raises(VariableError, match="not of one kind"):
        opscope.compare(one, need("trained", "tdnn", "model.raw"))
    with pytest.raises(FormatError, match="missing"):
        opscope.compare(one, tmp_path / "missing.pb")
    with pytest.raises(VariableError, match="rows from 1"):
        opscope.compare(one, one, rows=0)
