"""Models of others: what ONNX Runtime computes is computed here, and one is trained further."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from opscope import NetBuilder

LIGHT = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
)
"""Networks of the onnx package, whose weights are constants that nodes make."""
OCR = "rapidocr_onnxruntime/models"


def folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"the package {package} is not installed")
    return Path(spec.origin).parent


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def bytes_of(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.int32)


def speech(name: str, rate: bool) -> tuple[str, Callable[[], dict[str, Any]]]:
    def feed() -> dict[str, Any]:
        found: dict[str, Any] = {"input": drawn(1, 576), "state": drawn(2, 1, 128)}
        return {**found, "sr": np.array(16000)} if rate else found

    return f"silero_vad/data/{name}.onnx", feed


MODELS: list[tuple[str, Callable[[], dict[str, Any]]]] = [
    speech("silero_vad", True),
    speech("silero_vad_16k_op15", True),
    speech("silero_vad_op18_ifless", True),
    speech("silero_vad_half", False),
    (f"{OCR}/ch_PP-OCRv4_det_infer.onnx", lambda: {"x": drawn(1, 3, 96, 128)}),
    (f"{OCR}/ch_PP-OCRv4_rec_infer.onnx", lambda: {"x": drawn(1, 3, 48, 160)}),
    (f"{OCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx", lambda: {"x": drawn(2, 3, 48, 192)}),
    ("magika/models/standard_v3_3/model.onnx", lambda: {"bytes": bytes_of(2, 2048)}),
    ("nudenet/320n.onnx", lambda: {"images": drawn(1, 3, 320, 320)}),
    ("ddddocr/common.onnx", lambda: {"input1": drawn(1, 1, 64, 96)}),
    ("ddddocr/common_det.onnx", lambda: {"images": drawn(1, 3, 416, 416)}),
    (
        "arabic_name_romanizer/resources/encoder.onnx",
        lambda: {"src": np.arange(2, 26)[None], "src_mask": np.ones((1, 24), bool)},
    ),
]


def path_of(model: str) -> Path:
    package, _, rest = model.partition("/")
    path = folder_of(package) / rest
    if not path.exists():
        pytest.skip(f"the package {package} has no file {rest}")
    return path


def session_of(path: Path) -> Any:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options)


@pytest.mark.parametrize(("model", "feed"), MODELS, ids=[name for name, _ in MODELS])
def test_equal_to_onnx_runtime(model: str, feed: Callable[[], dict[str, Any]]) -> None:
    path = path_of(model)
    loaded, given = opscope.from_onnx(path), feed()
    found = loaded.run(given)
    for one, other in zip(found.values(), session_of(path).run(None, given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert loaded.is_one_net(given)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_light_models(name: str) -> None:
    """Before the last softmax: equal weights give scores near 1e18, and rounding decides."""
    helper = pytest.importorskip("onnx.helper")
    import onnx

    path = folder_of("onnx") / f"backend/test/data/light/light_{name}.onnx"
    model = onnx.load(path)
    if model.graph.node[-1].op_type == "Softmax":
        del model.graph.output[:]
        scores = helper.make_empty_tensor_value_info(model.graph.node[-1].input[0])
        scores.type.tensor_type.elem_type = 1
        model.graph.output.append(scores)
    from opscope.bridges.onnx.importing.model import model_of_bytes

    data = model.SerializeToString()
    loaded = model_of_bytes(data, name)
    shape = [dim if isinstance(dim, int) and dim > 0 else 1 for dim in loaded.inputs[0].shape or ()]
    x = (np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32)
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    given = {loaded.inputs[0].name: x}
    (wanted,) = ort.InferenceSession(data, options).run(None, given)
    (found,) = loaded.run(given).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * float(np.abs(wanted).max()))


def test_a_classifier_is_trained_further(tmp_path: Path) -> None:
    path = path_of(f"{OCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx")
    model = opscope.from_onnx(path)
    rows = drawn(8, 3, 48, 96)
    b = NetBuilder.from_desc(model.op_list({"x": (-1, 3, 48, 96)}))
    label = b.input("label", [-1], "int64")
    loss = b.mean(b.cross_entropy(b.var(model.outputs[0].name), label), name="loss")
    b.backward_from(loss)
    b.add_optimization(1e-4, "adam")
    feed = {"x": rows, "label": np.arange(8) % 2}
    history = opscope.train(b, [feed], epochs=5, scope=model.scope, progress=False)
    losses = [row["loss"] for row in history.rows]
    assert all(later < before for before, later in zip(losses, losses[1:], strict=False))
    model.save(tmp_path / "tuned", {"x": (-1, 3, 48, 96)})
    found = opscope.load(tmp_path / "tuned").predict({"x": rows})[model.outputs[0].name]
    np.testing.assert_allclose(found, model.run({"x": rows})[model.outputs[0].name], atol=1e-6)
