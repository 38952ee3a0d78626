"""Images resized, and boxes chosen, at random: as ONNX Runtime does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, Scope, to_onnx
from opscope.bridges.inference.form import ExportError
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing.kinds import selection
from opscope.bridges.onnx.importing.model import model_of_bytes

onnxruntime = pytest.importorskip("onnxruntime")


def session_of(model: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options)


MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_half_pixel_for_nn")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_random_resizes_are_onnxruntimes(mode: str) -> None:
    """By sizes and by factors, which may be fractions or leave sizes as they are; of sizes that are
    declared, and of others."""
    rng = np.random.default_rng(5)
    compared = 0
    for _ in range(90):
        rank = int(rng.integers(1, 4))
        sizes = rng.integers(1, 11, rank)
        attrs: dict[str, Any] = {"mode": mode}
        attrs["coordinate_transformation_mode"] = str(rng.choice(MODES))
        if mode == "nearest":
            attrs["nearest_mode"] = str(rng.choice(ROUNDINGS))
        if mode == "cubic":
            attrs["exclude_outside"] = int(rng.integers(2))
        g = Graph("g")
        g.input("x", np.float32, [2, 3, *([None] * rank if rng.integers(2) else sizes.tolist())])
        draws = [
            rng.choice([0.5, 1, 2, 1.5, 3], rank),
            rng.choice([0.7, 0.9, 1.1, 2.3], rank),
            rng.uniform(0.4, 3, rank),
            1 + rng.uniform(0, 0.12, rank),
        ]
        if number := rng.integers(5):
            factors = np.float32([1, 1, *draws[number - 1]])
            inputs = ["x", "", g.constant(factors, dtype=np.float32)]
        else:
            new = np.array([2, 3, *rng.integers(1, 12, rank)])
            inputs = ["x", "", "", g.constant(new, dtype=np.int64)]
        g.output(g.node("Resize", inputs, "z", **attrs), np.float32)
        data = model_bytes(g)
        x = rng.normal(size=(2, 3, *sizes)).astype(np.float32)
        try:
            (wanted,) = session_of(data).run(None, {"x": x})
        except Exception:  # a form that it does not have
            continue
        compared += 1
        found = model_of_bytes(data).run({"x": x})["z"]
        what = f"{sizes} -> {wanted.shape[2:]} {attrs}"
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=3e-5, err_msg=what)
    assert compared > 20


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("sizes", "scale"), [((7, 4), 1.1), ((7,), 1.1), ((4, 5), 2.1), ((9, 2), 1.2), ((2, 3), 1.6)]
)
def test_a_factor_that_leaves_a_size_means_the_same_in_a_file(
    sizes: tuple[int, ...], scale: float, mode: str, tmp_path: Any
) -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 2, *sizes])
    out = b.interpolate(x, scale=scale, mode=mode)
    path = tmp_path / "net.onnx"
    if out.shape[2:] == sizes and (mode == "cubic" or (mode, len(sizes)) == ("nearest", 1)):
        with pytest.raises(ExportError, match="runtimes copy"):  # PyTorch, and we, do not
            to_onnx(b, path, outputs=[out.name])
        return
    to_onnx(b, path, outputs=[out.name])
    drawn = np.random.default_rng(0).normal(size=(3, 2, *sizes)).astype(np.float32)
    (found,) = session_of(str(path)).run(None, {"x": drawn})
    (wanted,) = b.predict({"x": drawn}, fetch=out, scope=Scope()).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


ODD = (np.nan, np.inf, -np.inf, 0, -0.0, 3e38, 1e-30)


@pytest.mark.parametrize("native_library", [True, False])
@pytest.mark.parametrize("centered", [0, 1])
def test_boxes_of_any_numbers_are_chosen_as_onnxruntime_does(
    centered: int, native_library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also boxes without an area, of NaN and infinite places, and overlaps at the threshold."""
    if not native_library:
        monkeypatch.setattr(selection.native, "load", lambda name: None)
    monkeypatch.setattr(selection, "_PLACES", 12)  # a few classes at once
    g = Graph("g")
    inputs = [g.input("boxes", np.float32, [None, None, 4])]
    inputs.append(g.input("scores", np.float32, [None, None, None]))
    inputs += [g.input("most", np.int64, [1]), g.input("overlap", np.float32, [1])]
    inputs.append(g.input("least", np.float32, [1]))
    g.output(g.node("NonMaxSuppression", inputs, "z", center_point_box=centered), np.int64)
    data = model_bytes(g)
    session, model = session_of(data), model_of_bytes(data)
    rng = np.random.default_rng(centered)
    for number in range(120):
        batch, classes, count = (int(n) for n in rng.integers((1, 1, 0), (3, 5, 14)))
        places = rng.integers(0, 5, (batch, count, 4))  # overlaps of 1/2, 1/3, 1
        if number % 3 == 0:
            places = rng.normal(size=(batch, count, 4))
        boxes = places.astype(np.float32)
        if number % 2:
            boxes[rng.random(boxes.shape) < 0.1] = rng.choice(np.float32(ODD))
        order = rng.permutation(classes * batch * count).reshape(batch, classes, count)
        scores = order.astype(np.float32) + (0 if number % 4 else 1)
        if number % 5 == 0:
            scores[rng.random(scores.shape) < 0.2] = np.nan
        feed = {
            "boxes": boxes,
            "scores": scores,
            "most": np.array([rng.integers(0, 7)]),
            "overlap": np.array([rng.choice([0, 0.3, 1 / 3, 0.5, 0.7, 1])], np.float32),
            "least": np.array([rng.choice([0, 2, -np.inf])], np.float32),
        }
        (wanted,) = session.run(None, feed)
        (found,) = model.run(feed).values()
        np.testing.assert_array_equal(found, wanted, err_msg=str(feed))
    for overlap in (-0.1, 1.5, np.nan):
        with pytest.raises(Exception, match="iou_threshold"):
            model.run(feed | {"overlap": np.array([overlap], np.float32)})


@pytest.mark.parametrize("native_library", [True, False])
def test_scores_of_nan_come_last(native_library: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no least score is given: ONNX does not say, and in the heap of ONNX Runtime they spoil
    the order of others."""
    if not native_library:
        monkeypatch.setattr(selection.native, "load", lambda name: None)
    g = Graph("g")
    inputs = [g.input("boxes", np.float32, [1, 6, 4]), g.input("scores", np.float32, [1, 1, 6])]
    inputs.append(g.constant(np.array([6]), dtype=np.int64))
    g.output(g.node("NonMaxSuppression", inputs, "z"), np.int64)
    at = np.arange(6, dtype=np.float32)[:, None]
    boxes = np.concatenate([at, at, at + 0.5, at + 0.5], 1)[None]
    scores = np.array([[[np.nan, 1, -np.inf, np.nan, np.inf, 1]]], np.float32)
    (found,) = model_of_bytes(model_bytes(g)).run({"boxes": boxes, "scores": scores}).values()
    assert found[:, 2].tolist() == [4, 1, 5, 2, 0, 3]
