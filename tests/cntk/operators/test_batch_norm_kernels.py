"""CNTK's batch norm by compiled kernels: equal to NumPy's, whatever the time constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import OpContext, Scope, cntk, options
from opscope.cntk.readers.base.data import Samples
from opscope.cntk.readers.base.layout import packed
from opscope.cntk.readers.base.pack import Minibatch
from opscope.cntk.run.runtime import CntkNet
from opscope.framework.base.cpu import threads
from opscope.framework.fusion import team
from opscope.framework.runtime.executor import Frame
from opscope.framework.runtime.plain_net import PlainNet
from opscope.operators.direct import batch_norm, images

pytestmark = pytest.mark.skipif(team.library() is None, reason="there is no native library")

_SLOTS = "x", "scale", "bias", "mean", "variance", "seen", "time", "blend"
_KEPT = {"mean_out": "mean", "variance_out": "variance", "seen_out": "seen"}
_FOUND = "out", "mean", "variance", "seen", "used_mean", "used_scale", "own_weight"


def compute(
    shape: tuple[int, ...], dtype: str, train: bool, times: tuple[float, float, float]
) -> dict[str, np.ndarray]:
    """All results of two runs, one after the other, and the gradients of the second."""
    rng, net, scope = np.random.default_rng(0), PlainNet(), Scope()
    writes = {slot: slot for slot in ("out", "used_mean", "used_scale", "own_weight")}
    net.add_op("cntk.batch_norm", {slot: slot for slot in _SLOTS}, {**writes, **_KEPT})
    net.add_backward_ops({"out": "slope"}, wrt=["x", "scale", "bias"])
    values = {
        name: rng.uniform(0.5, 1.5, shape[1]).astype(dtype)
        for name in ("scale", "bias", "mean", "variance")
    }
    values["mean"], values["variance"] = values["mean"][:, None], values["variance"][None]
    for name, value in zip(("seen", "time", "blend"), times, strict=True):
        values[name] = np.array([value])
    scope.feed(values)
    gradients = [f"{name}@GRAD" for name in ("x", "scale", "bias")]
    for _ in range(2):
        x, slope = (rng.normal(0.3, 2, shape).astype(dtype) for _ in range(2))
        scope.feed({"x": x, "slope": slope})
        net.run(scope, OpContext(train=train, live_out=(*_FOUND, *gradients)))
    return {name: scope.numpy(name) for name in (*_FOUND, *gradients)}


def check(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], dtype: str) -> None:
    near = 1e-5 if dtype == "float32" else 1e-12
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype
        terms = wanted["used_scale"].max() if name == "x@GRAD" else 1  # they cancel out
        atol = near * max(terms, abs(value).max(initial=1))
        np.testing.assert_allclose(found[name], value, rtol=near, atol=atol, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "times",
    [
        (0.0, np.inf, np.inf),  # the first minibatch counts alone, then all is frozen
        (15.0, -1.0, 0.0),
        (15.0, 0.0, 5.0),
        (15.0, 100.0, 7.0),
        (15.0, np.inf, np.inf),
        (15.0, 40.0, -3.0),
    ],
)
@pytest.mark.parametrize("train", [True, False])
def test_numbers(train: bool, times: tuple[float, float, float], dtype: str) -> None:
    for shape in ((7, 5), (64, 33), (6, 18, 49), (1, 4), (3, 2, 2000), (4, 19, 6, 5)):
        found = compute(shape, dtype, train, times)
        with options(libraries="xp"):
            check(found, compute(shape, dtype, train, times), dtype)


def test_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 3)
    found = []
    with threads.threads_set(3):
        for number in (1, 2, 3):
            threads.POOL[0] = number
            found.append(compute((40, 12, 700), "float32", True, (15.0, 100.0, 7.0)))
    for other in found[1:]:
        for name, value in found[0].items():
            np.testing.assert_array_equal(other[name], value, err_msg=name)


@pytest.mark.parametrize("served", [True, False])
def test_it_serves_and_can_be_switched_off(served: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    real = images.Work.call
    monkeypatch.setattr(images.Work, "call", lambda work: made.append(1) or real(work))
    monkeypatch.setenv("OPSCOPE_LIBRARIES", "direct,xp" if served else "xp")
    compute((6, 5, 4), "float32", True, (1.0, 10.0, 0.0))
    assert len(made) == (2 if served else 0)


def test_arrays_that_do_not_suit_are_left_to_numpy() -> None:
    assert batch_norm._layout(np.zeros((4, 6, 8))[:, ::2]) is None
    empty = compute((0, 3), "float32", True, (5.0, 10.0, 0.0))
    assert empty["out"].shape == (0, 3) and empty["seen"] == 5


NETWORK = """{
    features = Input {7:6:3} ; labels = Input {2}
    model = Sequential (
        ConvolutionalLayer {5, (3:3), pad = true, bias = false} :
        BatchNormalizationLayer {spatialRank = 2, normalizationTimeConstant = 40} : ReLU :
        MaxPoolingLayer {(2:2), stride = (2:2)} :
        ConvolutionalLayer {8, (2:2)} : BatchNormalizationLayer {spatialRank = 2} : ReLU :
        AveragePoolingLayer {(2:2)} : LinearLayer {2}
    )
    z = model (features) ; ce = CrossEntropyWithSoftmax (labels, z)
    featureNodes = (features) ; labelNodes = (labels) ; criterionNodes = (ce) ; outputNodes = (z)
}"""


def trained() -> dict[str, np.ndarray]:
    """What a net with convolutions computes in two passes of training, and after them."""
    network, rng = cntk.build_network(NETWORK), np.random.default_rng(0)
    network.precision = "double"
    network.validate()
    net, found = CntkNet(network), {}
    begin, layout = np.arange(5), packed(np.ones(4, int))
    for name in net.parameters():
        net.set(name, rng.normal(size=net.get(name).shape))
    for _ in range(2):
        rows = {"features": rng.normal(size=(4, 126)), "labels": np.eye(2)[[0, 1, 1, 0]]}
        held = {name: Samples(begin, values) for name, values in rows.items()}
        batch = Minibatch(held, dict.fromkeys(held, layout), np.zeros((4, 2)))
        found["ce"] = np.array(net.forward_backward(batch, "ce")["ce"])
    found |= {name: net.gradient(name) for name in net.parameters()}
    found["z"] = net.forward(batch, ["z"])["z"].data
    return found


def test_images_of_a_convolution_stay_images(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = Frame.run

    def watch(frame: Frame, context: Any) -> None:
        ops = [op for step in frame.plan.steps for op in step.operators if op.type == "reshape"]
        ranks = [len(frame.plan.specs[op.inputs["x"][0]][0]) for op in ops]
        seen.append(ranks.count(4))
        real(frame, context)

    monkeypatch.setattr(Frame, "run", watch)
    found = trained()
    assert seen == [2, 2, 2]  # image and weights of the linear layer
    monkeypatch.setenv("OPSCOPE_LIBRARIES", "xp")
    check({**found, "used_scale": np.ones(1)}, trained(), "float64")
