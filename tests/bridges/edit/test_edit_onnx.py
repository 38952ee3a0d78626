"""Edits of ONNX models: what they compute afterwards, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.bridges.edit.editor import Editor
from opscope.framework.base.errors import OpscopeError

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """x -> a = relu(x w) -> b = tanh(a) -> y = a + b."""
    pytest.importorskip("onnxruntime")
    path = tmp_path_factory.mktemp("edit") / "model.onnx"
    b, scope = NetBuilder("net"), Scope()
    product = b.matmul(b.input("x", [-1, 4]), b.parameter("w", [4, 3]), name="product")
    a = b.relu(product, name="a")
    b.add(a, b.tanh(a, name="b"), name="y")
    b.initialize(scope, opscope.OpContext(seed=0))
    opscope.to_onnx(b, path, scope)
    return path


def values(path: Path, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return opscope.from_onnx(path).run(feed)


EDITS: list[
    tuple[str, Callable[[Editor], Editor], Callable[[np.ndarray, np.ndarray], np.ndarray]]
] = [
    (
        "rename",
        lambda e: e.rename("w", "weights"),
        lambda p, w: np.maximum(p, 0) + np.tanh(np.maximum(p, 0)),
    ),
    ("bypass", lambda e: e.remove("b", bypass=True), lambda p, w: 2 * np.maximum(p, 0)),
    ("replace", lambda e: e.replace("b", "Neg"), lambda p, w: 0 * p),
    ("connect", lambda e: e.connect("b", ["product"]), lambda p, w: np.maximum(p, 0) + np.tanh(p)),
    ("set value", lambda e: e.set_value("w", np.zeros((4, 3))), lambda p, w: 0 * p),
]


@pytest.mark.parametrize(
    ("edit", "wanted"), [row[1:] for row in EDITS], ids=[row[0] for row in EDITS]
)
def test_what_an_edited_model_computes(model, tmp_path, edit, wanted) -> None:
    arrays = dict(opscope.edit(model)._target.arrays)
    editor = edit(opscope.edit(model))
    assert str(editor.difference())
    editor.save(tmp_path / "edited.onnx")
    (found,) = values(tmp_path / "edited.onnx", {"x": X}).values()
    np.testing.assert_allclose(found, wanted(X @ arrays["w"], arrays["w"]), atol=1e-6)


def test_a_part_is_cut_out(model, tmp_path) -> None:
    opscope.edit(model).cut({"middle": "a"}, ["b"]).save(tmp_path / "part.onnx")
    part = opscope.from_onnx(tmp_path / "part.onnx")
    (told,) = part.inputs
    assert (told.name, told.dtype, len(told.shape)) == ("middle", np.float32, 2)
    np.testing.assert_allclose(part.run({"middle": X[:, :3]})["b"], np.tanh(X[:, :3]), atol=1e-6)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda e: e.remove("a"), "'a' is read by b, y"),
        (lambda e: e.remove("c"), "no node is called 'c'"),
        (lambda e: e.rename("a", "y"), "there is a value 'y' already"),
        (lambda e: e.connect("a", ["y"]), "would wait for itself"),
        (lambda e: e.set_value("w", np.zeros(3)), r"'w' is \[4, 3\], not \[3\]"),
        (lambda e: e.freeze("w"), "says nothing of training"),
        (lambda e: e.remove_outputs("y"), "this would remove all outputs"),
    ],
)
def test_refused(model, edit, message) -> None:
    with pytest.raises(OpscopeError, match=message):
        edit(opscope.edit(model))
