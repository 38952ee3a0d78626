"""ONNX's own tests of single nodes: what is read computes the same, by nets and on the host."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing.kinds import selection
from opscope.bridges.onnx.importing.model import OnnxModel, model_of_bytes
from opscope.framework.base.errors import FormatError

LEAST = 1190
"""So many pass at the least; with the onnx package 1.23 there are 1,404, written-out ones aside."""
DRAWN = ("test_bernoulli", "test_bernoulli_double", "test_bernoulli_seed")
"""Results that are drawn at random; dtype and shape are compared."""
WHOLE_LENGTHS = tuple(
    f"test_resize_downsample_scales_{mode}_align_corners" for mode in ("linear", "cubic")
)
"""Corners at fractions of a place: ONNX Runtime, as PyTorch, puts them on the last places, and its
results are ours (test_onnx_images.py); dtype and shape are compared."""
REFUSED = {
    *("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"),
    *("ImageDecoder", "LinearAttention", "CausalConvWithState", "SwiGLU"),
    *("ai.onnx.ml.LabelEncoder", "ai.onnx.ml.TreeEnsemble", "ai.onnx.preview.FlexAttention"),
    *(f"ai.onnx.preview.training.{name}" for name in ("Adagrad", "Adam", "Momentum")),
}
"""Operators that are not here; beside them, types of less than 8 bits and floats of 8."""


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    pytest.importorskip("onnx")
    pytest.importorskip("ml_dtypes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    return [case for case in found if "_expanded" not in case.name]


def array(value: Any) -> Any:
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def read(case: Any, refused: Counter[str]) -> OnnxModel | None:
    """The model of a case; None where it is refused, which is counted by the reason."""
    try:
        return model_of_bytes(case.model.SerializeToString(), case.name)
    except FormatError as error:
        found = re.search(r"node '[^']*' \(([\w.]+), opset \d+\)$", str(error))
        kind = re.search(r"of type (\w+) are not supported", str(error))
        assert found or kind, f"{case.name}: {error}"
        refused[(found or kind)[1]] += 1  # type: ignore[index]
        return None


def compare(case: Any, found: Any, wanted: Any) -> None:
    if isinstance(wanted, list):
        assert isinstance(found, list) and len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            compare(case, one, other)
        return
    wanted = array(wanted)
    if wanted is None or found is None:
        assert found is wanted
        return
    wanted = np.asarray(wanted)
    if wanted.dtype.kind in "UO":
        np.testing.assert_array_equal(found, wanted.astype(object))
        return
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if case.name in DRAWN + WHOLE_LENGTHS:
        return
    rtol = 0.02 if wanted.dtype.name == "bfloat16" else max(case.rtol, 1e-3)
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=max(case.atol, 1e-6))


def fed(model: OnnxModel, inputs: Any) -> dict[str, Any]:
    return {info.name: array(value) for info, value in zip(model.inputs, inputs, strict=False)}


@pytest.mark.slow
def test_nodes_in_nets(cases: list[Any]) -> None:
    refused: Counter[str] = Counter()
    passed, wrong = 0, []
    for case in cases:
        model = read(case, refused)
        if model is None:
            continue
        try:
            for inputs, outputs in case.data_sets:
                found = model.run(fed(model, inputs))
                for one, other in zip(found.values(), outputs, strict=True):
                    compare(case, one, other)
            passed += 1
        except Exception as error:
            wrong.append(f"{case.name}: {error}")
    assert not wrong, "\n".join(wrong)
    assert passed >= LEAST
    types = {name for name in refused if re.fullmatch(r"U?INT[24]|FLOAT[48]E\w+", name)}
    assert set(refused) - types <= REFUSED


@pytest.mark.slow
def test_nodes_on_the_host(cases: list[Any]) -> None:
    """The other way to compute a node, which folding and data-dependent graphs take."""
    wrong = []
    for case in cases:
        model = read(case, Counter())
        if model is None or len(model._model.graph.nodes) != 1:
            continue
        node = model._model.graph.nodes[0]
        try:
            for inputs, outputs in case.data_sets:
                env = model._fed(fed(model, inputs))
                made = model._engine.evaluate(node, env)
                kept = [value for value, name in zip(made, node.outputs, strict=False) if name]
                for one, other in zip(kept, outputs, strict=True):
                    compare(case, one, other)
        except Exception as error:
            wrong.append(f"{case.name}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("count", [0, 1, 150, 700])
def test_boxes_are_dropped_one_after_another(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(count)
    center, size = rng.uniform(0, 30, (count, 2)), rng.uniform(0, 8, (count, 2))
    boxes = np.concatenate([center, center + size], 1).astype("f4")
    boxes[::3] = boxes[::3, [2, 3, 0, 1]]  # corners in any order
    scores = (rng.integers(0, 40, count) / 40).astype("f4")  # with equal ones
    for most, bound, least in (100, 0.3, 0.1), (3, 0.5, -1.0), (500, 0.0, 0.5), (0, 0.5, 0.0):
        feed = {"b": boxes[None], "s": scores[None, None]}
        model = _suppression(most, bound, least)
        found = model.run(feed)["kept"]
        assert found.tolist() == [[0, 0, one] for one in _best(boxes, scores, most, bound, least)]
        with monkeypatch.context() as without:
            without.setattr(selection, "native", SimpleNamespace(load=lambda name: None))
            assert model.run(feed)["kept"].tolist() == found.tolist()


def test_boxes_and_scores_that_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 30, (200, 2)).astype("f4")
    high = (low + rng.uniform(0, 10, (200, 2))).astype("f4")
    scores = (rng.integers(0, 20, 200) / 20).astype("f4")
    low[::7, 0], high[::11, 1], scores[::13] = np.nan, np.nan, np.nan
    scores[::17], scores[::19] = 0, -0.0
    for given in (low, high, scores), (low[::2], high[::2], scores[::2]):
        boxes = np.concatenate(given[:2], 1)[None]
        for most, bound, least in (20, 0.3, 0.1), (200, 0.0, -np.inf), (200, 0.3, None):
            model = _suppression(most, bound, least)
            found = model.run({"b": boxes, "s": given[2][None, None]})["kept"]
            with monkeypatch.context() as without:
                without.setattr(selection, "native", SimpleNamespace(load=lambda name: None))
                again = model.run({"b": boxes, "s": given[2][None, None]})["kept"]
            assert found.tolist() == again.tolist() and len(found)


@pytest.mark.parametrize("library", ["native", "numpy"])
def test_every_score_counts_where_no_least_one_is_given(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "numpy":
        monkeypatch.setattr(selection, "native", SimpleNamespace(load=lambda name: None))
    corners = np.arange(9, dtype="f4")[:, None] * 2  # boxes that have nothing in common
    boxes = np.concatenate([corners, corners, corners + 1, corners + 1], 1)[None]
    scores = np.array([-np.inf, 0.5, np.nan, 1, np.inf, -np.inf, np.nan, -3, 0.5], "f4")
    for least, order in (
        (None, [4, 3, 1, 8, 7, 0, 5, 2, 6]),
        (-np.inf, [4, 3, 1, 8, 7]),
        (0.5, [4, 3]),
    ):
        found = _suppression(9, 0.5, least).run({"b": boxes, "s": scores[None, None]})["kept"]
        assert found[:, 2].tolist() == order


@pytest.mark.parametrize(
    "boxes, scores",
    [
        ((1, 6, 4), (1, 1, 5)),
        ((1, 4, 4), (1, 1, 5)),
        ((1, 5, 4), (2, 1, 5)),
        ((2, 5, 4), (1, 1, 5)),
        ((1, 5, 3), (1, 1, 5)),
        ((5, 4), (1, 1, 5)),
        ((1, 5, 4), (1, 5)),
        ((1, 0, 4), (1, 1, 5)),
    ],
)
def test_boxes_that_are_no_match_for_scores_are_refused(
    boxes: tuple[int, ...], scores: tuple[int, ...]
) -> None:
    model = _suppression(9, 0.5, None, len(boxes), len(scores))
    shapes = re.escape(f"theirs are {list(boxes)} and {list(scores)}")
    with pytest.raises(FormatError, match=rf"'kept'.* scores \[B, C, N\] are expected; {shapes}"):
        model.run({"b": np.zeros(boxes, "f4"), "s": np.ones(scores, "f4")})


@pytest.mark.parametrize("batches, classes, count", [(0, 2, 5), (2, 0, 5), (2, 3, 0)])
def test_boxes_of_none_are_taken(batches: int, classes: int, count: int) -> None:
    feed = {"b": np.zeros((batches, count, 4), "f4"), "s": np.ones((batches, classes, count), "f4")}
    assert _suppression(9, 0.5, None).run(feed)["kept"].shape == (0, 3)


def _suppression(
    most: int, bound: float, least: float | None, box_dims: int = 3, score_dims: int = 3
) -> OnnxModel:
    g = Graph("boxes")
    dims = [[f"{name}{i}" for i in range(n)] for name, n in (("b", box_dims), ("s", score_dims))]
    given = [g.input(name, np.float32, one) for name, one in zip("bs", dims, strict=True)]
    limits = [np.int64(most), np.float32(bound)]
    limits += [] if least is None else [np.float32(least)]
    kept = g.node("NonMaxSuppression", [*given, *map(g.constant, limits)], outputs=["kept"])
    g.output(kept, np.int64)
    return model_of_bytes(model_bytes(g))


def _best(boxes: Any, scores: Any, most: int, bound: float, least: float) -> list[int]:
    """The definition: the best box that is left, without those that overlap it, again and again."""
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    kept: list[int] = []
    for one in np.argsort(-scores, kind="stable"):
        if len(kept) == most or scores[one] <= least:
            break
        sides = np.minimum(high[one], high[kept]) - np.maximum(low[one], low[kept])
        common = np.prod(np.maximum(sides, 0), axis=-1)
        areas = np.prod(high[[one, *kept]] - low[[one, *kept]], axis=-1)
        if np.all(common <= bound * (areas[0] + areas[1:] - common)):
            kept.append(int(one))
    return kept
