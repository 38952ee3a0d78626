"""Convolutions of 3x3 taps with fewer multiplications: errors, shapes, unusual values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import opscope
from convolution_runs import exactly, run
from native_calls import calls_noted
from opscope import NetBuilder
from opscope.framework.base.cpu.threads import threads_set
from opscope.framework.fusion.compiled import native
from opscope.operators.direct import winograd

_PROCESSORS = [one.name for one in native.kinds_here() if one.files is None]


@pytest.fixture(params=_PROCESSORS or ["best"], autouse=True)
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each kind that this processor is, without tiles, in shapes that gain nothing, too."""
    if not _PROCESSORS:
        pytest.skip("there is no native library")
    monkeypatch.setenv("OPSCOPE_CPU", request.param)
    monkeypatch.setattr(winograd, "_MARGIN", (0, 1))
    monkeypatch.setattr(winograd, "_PACKED", 1)
    with opscope.options(amx=False):
        yield


def case(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Random arrays and attributes of a convolution."""
    groups = int(rng.choice([1, 1, 1, 2]))
    channels = groups * int(rng.choice([1, 3, 8, 16, 31, 65][groups > 1 and 2 :]))
    filters = groups * int(rng.choice([4, 8, 16, 31, 48, 65]))
    attrs: dict[str, Any] = {
        "padding": [int(rng.integers(0, 3)) for _ in range(4)],
        "groups": groups,
    }
    sizes = [int(rng.integers(3, 19)) for _ in range(2)]
    shapes = {
        "x": (int(rng.integers(1, 4)), channels, *sizes),
        "w": (filters, channels // groups, 3, 3),
    }
    if rng.random() < 0.5:
        shapes["b"] = (filters,)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}, attrs


def assert_right(given: Mapping[str, np.ndarray], attrs: dict[str, Any], found: np.ndarray) -> None:
    """Errors are small beside a sum in which all weights of a channel and filter are its largest;
    what is infinite or NaN is so."""
    w = np.abs(given["w"])
    largest = np.broadcast_to(w.max((2, 3), keepdims=True), w.shape)
    sizes = {name: np.abs(array) for name, array in given.items()} | {"w": largest}
    with np.errstate(all="ignore"):
        size, exact = exactly(sizes, attrs), exactly(given, attrs)
        want = exact.astype(np.float32)
        fine = np.isfinite(want)
        np.testing.assert_array_equal(found[~fine], want[~fine])
        assert np.all(np.abs(found - exact)[fine] < (4e-7 * size + 1e-30)[fine])


def by_taps(given: Mapping[str, np.ndarray], attrs: dict[str, Any]) -> np.ndarray:
    with opscope.options(winograd=False):
        return run(given, attrs, "direct")


@pytest.mark.parametrize("seed", range(12))
def test_errors_are_small(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = calls_noted(monkeypatch)
    given, attrs = case(np.random.default_rng(seed))
    results = [run(given, attrs, "direct", threads) for threads in (1, 2, 3)]
    assert "winograd" in noted
    assert_right(given, attrs, results[0])
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])  # to the bit, whoever does which part


def test_errors_are_no_larger_than_those_of_taps() -> None:
    """In the shapes of residual nets: of 16 sums each has fewer terms."""
    rng = np.random.default_rng(0)
    for channels, size in ((64, 28), (256, 14), (512, 7)):
        given = {"x": rng.standard_normal((1, channels, size, size), np.float32)}
        given["w"] = rng.standard_normal((32, channels, 3, 3), np.float32)
        attrs = {"padding": [1, 1]}
        want = exactly(given, attrs)
        found = run(given, attrs, "direct"), by_taps(given, attrs)
        ours, taps = (float(np.sqrt(np.square(one - want).mean())) for one in found)
        assert ours < 1.2 * taps


# One pixel; parts of tiles at both ends; no padding; more zeros than image; many tiles of images of
# which each has one; blocks that end within an image.
SHAPES = [
    ((1, 16, 3, 3), 20, [0, 0]),
    ((1, 5, 1, 1), 16, [1, 1]),
    ((2, 33, 4, 9), 48, [0, 0]),
    ((1, 16, 2, 1), 33, [2, 2]),
    ((70, 4, 3, 3), 4, [0, 0]),
    ((3, 70, 11, 10), 130, [1, 1]),
    ((1, 200, 9, 9), 16, [2, 0, 0, 2]),
]


@pytest.mark.parametrize(("image", "filters", "padding"), SHAPES)
def test_shapes(image: tuple[int, ...], filters: int, padding: list[int]) -> None:
    rng = np.random.default_rng(len(image))
    given = {"x": rng.standard_normal(image, np.float32)}
    given["w"] = rng.standard_normal((filters, image[1], 3, 3), np.float32)
    attrs = {"padding": padding}
    results = [run(given, attrs, "direct", threads) for threads in (1, 2)]
    assert_right(given, attrs, results[0])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 1e-42])
@pytest.mark.parametrize("where", ["x", "w"])
@pytest.mark.parametrize("size", [8, 21])
def test_unusual_values(size: int, where: str, value: float) -> None:
    rng = np.random.default_rng(size)
    given = {"x": rng.standard_normal((2, 40, size, size), np.float32)}
    given["w"] = rng.standard_normal((48, 40, 3, 3), np.float32)
    attrs = {"padding": [1, 1]}
    usual = run(given, attrs, "direct")
    given[where][1, 35, 1, 2] = value
    results = [run(given, attrs, "direct", threads) for threads in (1, 2, 3)]
    assert_right(given, attrs, results[0])
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    if where == "x":  # results that the pixel is no part of keep their bits
        np.testing.assert_array_equal(results[0][0], usual[0])
        np.testing.assert_array_equal(results[0][1, :, 4:], usual[1, :, 4:])


def test_numbers_whose_sums_leave_the_range() -> None:
    """Differences of pixels overflow, results do not."""
    given = {"x": np.full((1, 16, 8, 8), 2.5e38, np.float32)}
    given["x"][..., ::2] *= -1
    given["w"] = np.zeros((16, 16, 3, 3), np.float32)
    given["w"][:, 3, 1, 1] = 0.5
    found = run(given, {"padding": [1, 1]}, "direct")
    np.testing.assert_array_equal(found, np.repeat(given["x"][:, :1] / 2, 16, axis=1))


@pytest.mark.parametrize("size", [7, 20])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("end", ["relu", "gelu", "add", "tanh"])
@pytest.mark.parametrize("outs", [64, 70])
def test_what_follows(
    size: int, threads: int, end: str, outs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norm, activation, and loops that add another image, of weights that stay packed; some pixels
    are infinite, and outputs a part of a vector."""
    noted = calls_noted(monkeypatch)
    b = NetBuilder("residual")
    x = b.input("x", [-1, 64, size, size])
    hidden = b.relu(b.batch_norm(b.conv2d(x, outs, 3, padding=1, bias=False)))
    again = b.conv2d(hidden, outs, 3, padding=1)
    ends = {"relu": lambda: b.relu(again + hidden), "gelu": lambda: b.gelu(again)}
    ends["tanh"] = lambda: hidden + b.tanh(again)
    # The loop writes to the memory that it reads.
    made = b.conv2d(ends.get(end, lambda: again + hidden)(), 8, 1)
    rng = np.random.default_rng(size)
    scope = opscope.Scope()
    b.initialize(scope, opscope.OpContext(seed=1))
    for name in sorted(scope.names()):
        array = scope.var(name).numpy()
        if array.ndim == 1:  # no norm that changes nothing
            scope.var(name).set(rng.uniform(0.5, 2, array.shape).astype(np.float32))
    filters = next(name for name in scope.names() if scope.var(name).numpy().ndim == 4)
    image = rng.standard_normal((2, 64, size, size), np.float32)
    net = b.bound_net(frozenset([made.name]), False)
    context = opscope.OpContext(train=False, live_out=[made.name])
    with threads_set(threads), np.errstate(all="ignore"):
        for factor, odd in ((1.0, False), (-0.5, False), (1.0, True)):
            scope.var(filters).set(scope.var(filters).numpy() * np.float32(factor))
            image[1, 5, 3, 4] = np.inf if odd else 1
            found = []
            for libraries in ("direct,native,xp", "xp"):
                noted.clear()
                with opscope.options(libraries=libraries, amx=False):
                    scope.var("x").set(image)
                    net.run(scope, context)
                assert ("winograd" in noted) <= (libraries != "xp")
                found.append(scope.var(made.name).numpy())
            assert np.any(found[1])
            np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attrs", [{"stride": [2, 2]}, {"dilation": [2, 1]}])
def test_other_windows_have_taps(attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    noted = calls_noted(monkeypatch)
    given = {"x": np.ones((1, 16, 9, 9), np.float32), "w": np.ones((16, 16, 3, 3), np.float32)}
    np.testing.assert_array_equal(run(given, attrs, "direct"), exactly(given, attrs))
    assert "conv" in noted and "winograd" not in noted
