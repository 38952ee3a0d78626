"""opscope.quantize: dynamic, static, weights alone; ONNX and our own files; what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.bridges.inference.form import ExportError
from opscope.bridges.onnx.files.reading import read_model
from opscope.framework.base.errors import AttributeTypeError

RNG = np.random.default_rng(0)


def real(rows: int) -> dict[str, np.ndarray]:
    return {"x": RNG.normal(size=(rows, 3, 8, 8)).astype("f4")}


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A net with both kinds of products, saved by us and as ONNX."""
    folder = tmp_path_factory.mktemp("nets")
    b, scope = NetBuilder("net"), Scope()
    h = b.relu(b.conv2d(b.input("x", [-1, 3, 8, 8]), 24, 3, padding=1))
    h = b.fc(b.flatten(h), size=40, activation="relu")
    b.fc(h, size=10, name="y")
    b.run(scope, feed=real(1), need_backward=False)
    opscope.save(b, scope, folder / "net.pb")
    opscope.to_onnx(b, folder / "net.onnx", scope, outputs=["y"])
    return {"ours": folder / "net.pb", "onnx": folder / "net.onnx"}


@pytest.mark.parametrize("source", ["ours", "onnx"])
@pytest.mark.parametrize(
    "how, kinds",
    {
        "dynamic": {"dynamic_quantize_linear", "integer_conv", "integer_matmul"},
        "static": {"quantize_linear", "integer_conv", "integer_matmul"},
        "weights": {"conv2d", "matmul"},
    }.items(),
)
def test_both_kinds_of_files(
    how: str, kinds: set[str], source: str, nets: dict[str, Path], tmp_path: Path
) -> None:
    data: Any = [real(20), real(30)]
    targets = [tmp_path / "made.onnx", tmp_path / "made.pb"]
    reports = [opscope.quantize(nets[source], target, how, data=data) for target in targets]
    feed = real(7)
    wanted = opscope.from_onnx(nets["onnx"]).run(feed)["y"]
    model = opscope.from_onnx(targets[0])
    made = model.run(feed)["y"]
    assert 1e-4 < np.linalg.norm(made - wanted) / np.linalg.norm(wanted) < 0.05
    again = opscope.load(targets[1]).predict(feed, "y")["y"]
    np.testing.assert_array_equal(again, made)
    session = pytest.importorskip("onnxruntime").InferenceSession(str(targets[0]))
    np.testing.assert_allclose(session.run(None, feed)[0], made, atol=0.02 * abs(made).max())
    assert kinds <= {op.type for op in model.op_list().ops}
    for report in reports:
        assert (report.products, report.left, len(report.layers)) == (3, 0, 3)
        assert all(0 < layer.error < 0.05 for layer in report.layers)
        assert len(report.table().splitlines()) == 4 and report.layers[0].kind == "Conv"
    size = targets[0].stat().st_size
    assert 2.5 * size < nets["onnx"].stat().st_size


@pytest.mark.parametrize("source", ["ours", "onnx"])
@pytest.mark.parametrize("weights, error", [("q8", 0.02), ("q4", 0.15)])
def test_weights_in_blocks(
    weights: str, error: float, source: str, nets: dict[str, Path], tmp_path: Path
) -> None:
    targets = [tmp_path / "made.onnx", tmp_path / "made.pb"]
    data: Any = [real(20)]
    reports = [
        opscope.quantize(nets[source], target, weights=weights, data=data) for target in targets
    ]
    feed = real(7)
    wanted = opscope.from_onnx(nets["onnx"]).run(feed)["y"]
    model = opscope.from_onnx(targets[0])
    made = model.run(feed)["y"]
    assert 1e-4 < np.linalg.norm(made - wanted) / np.linalg.norm(wanted) < error
    again = opscope.load(targets[1]).predict(feed, "y")["y"]
    np.testing.assert_allclose(again, made, rtol=0, atol=1e-5 * abs(made).max())
    session = pytest.importorskip("onnxruntime").InferenceSession(str(targets[0]))
    np.testing.assert_allclose(session.run(None, feed)[0], made, atol=1e-3 * abs(made).max())
    assert [op.type for op in model.op_list().ops].count("matmul_nbits") == 2
    for report in reports:
        assert (report.products, report.left, report.form) == (2, 0, weights)
        assert all(0 < layer.error < error for layer in report.layers)


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("weights, block", [("q8", 32), ("q4", 32), ("q4", 96)])
def test_weights_in_blocks_of_standard_operators(
    weights: str, block: int, external: bool, tmp_path: Path
) -> None:
    b, scope, path = NetBuilder("standard"), Scope(), str(tmp_path / "made.onnx")
    x = b.fc(b.input("x", [-1, 301]), size=133, activation="relu")
    b.fc(x, size=5, bias=False, name="y")
    b.initialize(scope)
    small = opscope.quantize_weights(b, scope, weights, block=block, int8_x=False)
    opscope.to_onnx(small, path, opset=21, external=external)
    feed = {"x": np.random.default_rng(2).normal(size=(3, 301)).astype("f4")}
    wanted = small.predict(feed, "y")["y"]
    assert abs(wanted - b.predict(feed, "y", scope=scope)["y"]).max() > 0
    file = read_model(path)
    nodes = file.model.graph.node
    assert {node.domain for node in nodes} == {""}
    assert [node.op_type for node in nodes].count("DequantizeLinear") == 2
    bits = 4 if weights == "q4" else 8
    numbers = 301 * 133 * bits / 8
    held = sum(one.stat().st_size for one in tmp_path.iterdir())
    assert numbers < held < 1.6 * numbers
    model = opscope.from_onnx(path)
    assert [op.type for op in model.op_list().ops].count("matmul_nbits") == 2
    np.testing.assert_allclose(model.run(feed)["y"], wanted, rtol=1e-5, atol=1e-5)
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    # Else it rounds what is multiplied with 4 bits.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    session = runtime.InferenceSession(path, options)
    np.testing.assert_allclose(session.run(None, feed)[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("source", ["ours", "onnx"])
def test_weights_in_bfloat16(source: str, nets: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes")
    targets = [tmp_path / "made.onnx", tmp_path / "made.pb"]
    data: Any = [real(20)]
    for target in targets:
        report = opscope.quantize(nets[source], target, weights="bf16", data=data)
        assert (report.products, report.left, report.form) == (2, 0, "bf16")
        assert all(0 < layer.error < 0.01 for layer in report.layers)
    assert 1.8 < nets["onnx"].stat().st_size / targets[0].stat().st_size < 2.1
    feed = real(7)
    wanted = opscope.load(targets[1]).predict(feed, "y")["y"]
    made = opscope.from_onnx(targets[0]).run(feed)["y"]
    np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-5 * abs(wanted).max())
    session = pytest.importorskip("onnxruntime").InferenceSession(str(targets[0]))
    np.testing.assert_allclose(session.run(None, feed)[0], made, atol=1e-5 * abs(made).max())


@pytest.mark.parametrize("weights", ["q8", "q4"])
def test_products_share_a_matrix_in_blocks(weights: str, tmp_path: Path) -> None:
    sizes = []
    for shared in (False, True):
        b, scope, path = NetBuilder("shared"), Scope(), tmp_path / f"{shared}.onnx"
        x, w = b.input("x", [-1, 128]), b.parameter("w", [128, 128])
        y = b.matmul(x, w)
        if shared:
            y = b.matmul(b.matmul(y, w), w)
        b.assign(y, name="y")
        b.initialize(scope)
        small = opscope.quantize_weights(b, scope, weights, int8_x=False)
        opscope.to_onnx(small, path, opset=21)
        sizes.append(path.stat().st_size)
    numbers = 128 * 128 * (4 if weights == "q4" else 8) / 8
    assert numbers < sizes[0] < sizes[1] < sizes[0] + numbers / 2
    nodes = read_model(path).model.graph.node
    assert [node.op_type for node in nodes].count("DequantizeLinear") == 3
    feed = {"x": np.random.default_rng(2).normal(size=(3, 128)).astype("f4")}
    model = opscope.from_onnx(path)
    assert [op.type for op in model.op_list().ops].count("matmul_nbits") == 3
    wanted = small.predict(feed, "y")["y"]
    np.testing.assert_allclose(model.run(feed)["y"], wanted, rtol=1e-4, atol=1e-5)
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    np.testing.assert_allclose(session.run(None, feed)[0], wanted, rtol=0.05, atol=0.05)


def test_refuses(nets: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "made.onnx"
    with pytest.raises(ExportError, match="`static` wants calibration data"):
        opscope.quantize(nets["onnx"], target, "static")
    with pytest.raises(AttributeTypeError, match="how is one of static, dynamic, weights"):
        opscope.quantize(nets["onnx"], target, "q3")
    with pytest.raises(AttributeTypeError, match="weights are one of q4, q8, bf16, not 'q3'"):
        opscope.quantize(nets["onnx"], target, weights="q3")
    with pytest.raises(AttributeTypeError, match="a block has 32, 64, 96, ... elements, not 16"):
        opscope.quantize(nets["onnx"], target, weights="q4", block=16)
    assert not list(tmp_path.iterdir())
