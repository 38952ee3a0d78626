"""Convolutions by AMX: as accurate as float32, in every shape, and for unusual values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opscope
from convolution_runs import exactly, run, worst_error
from native_calls import calls_noted
from opscope import NetBuilder
from opscope.framework.base.cpu.threads import threads_set
from opscope.operators.direct import tile_convolutions
from opscope.operators.direct.images import lanes
from tiles import tiles  # noqa: F401


@pytest.fixture(autouse=True)
def any_shape(tiles: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Tiles serve where they gain nothing, too."""
    if lanes(np.dtype(np.float32)) != 16:
        pytest.skip("OPSCOPE_CPU leaves AVX-512 out, whose vectors what is added must fill")
    monkeypatch.setattr(tile_convolutions, "_FEWEST", 1)
    monkeypatch.setattr(tile_convolutions, "_PACKED", 1)
    monkeypatch.setattr(tile_convolutions, "_VECTORS", 0)


def case(rng: np.random.Generator, rank: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Random arrays and attributes of a convolution."""
    groups = int(rng.choice([1, 1, 2]))
    channels, filters = (groups * int(rng.choice([5, 16, 31, 32, 50, 70])) for _ in range(2))
    kernel = [int(rng.integers(1, 4)) for _ in range(rank)]
    attrs: dict[str, Any] = {
        "stride": [int(rng.integers(1, 4)) for _ in range(rank)],
        "dilation": [int(rng.integers(1, 3)) for _ in range(rank)],
        "padding": [int(rng.integers(0, 3)) for _ in range(2 * rank)],
        "groups": groups,
    }
    sizes = [
        (k - 1) * d + int(rng.integers(1, 40 if rank == 1 else 22))
        for k, d in zip(kernel, attrs["dilation"], strict=True)
    ]
    shapes = {
        "x": (int(rng.integers(1, 4)), channels, *sizes),
        "w": (filters, channels // groups, *kernel),
    }
    if rng.random() < 0.5:
        shapes["b"] = (filters,)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}, attrs


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_as_accurate_as_float32(seed: int, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = calls_noted(monkeypatch)
    rng = np.random.default_rng([seed, rank])
    given, attrs = case(rng, rank)
    results = [run(given, attrs, "direct", threads) for threads in (1, 2, 3)]
    assert "tile_conv" in noted
    assert worst_error(given, attrs, results[0]) < 4e-7
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])  # to the bit, whoever does which part


# Weights larger than the image, which threads share; of more than one piece; of an odd number of
# groups; rows longer than a tile; one pixel after another.
SHAPES = [
    ((1, 96, 7, 7), (70, 96, 3, 3), 1),
    ((2, 320, 9, 5), (64, 320, 3, 3), 1),
    ((1, 32, 3, 33), (32, 32, 1, 1), 1),
    ((1, 64, 28, 28), (64, 64, 3, 3), 2),
    ((3, 40, 17, 1), (33, 40, 3, 1), 1),
]


@pytest.mark.parametrize(("image", "filters", "stride"), SHAPES)
def test_shapes(image: tuple[int, ...], filters: tuple[int, ...], stride: int) -> None:
    rng = np.random.default_rng(len(image))
    given = {"x": rng.standard_normal(image, np.float32)}
    given["w"] = rng.standard_normal(filters, np.float32)
    attrs = {"stride": [stride, stride], "padding": [size // 2 for size in filters[2:]]}
    results = [run(given, attrs, "direct", threads) for threads in (1, 2)]
    assert worst_error(given, attrs, results[0]) < 4e-7
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 1e-42])
@pytest.mark.parametrize("where", ["x", "w"])
@pytest.mark.parametrize("size", [8, 20])
def test_values_that_cannot_be_split(size: int, where: str, value: float) -> None:
    rng = np.random.default_rng(size)
    given = {"x": rng.standard_normal((2, 40, size, size), np.float32)}
    given["w"] = rng.standard_normal((48, 40, 3, 3), np.float32)
    given[where][1, 35, 1, 2] = value
    attrs = {"padding": [1, 1]}
    results = [run(given, attrs, "direct", threads) for threads in (1, 2, 3)]
    with np.errstate(all="ignore"):
        want = exactly(given, attrs).astype(np.float32)
    for found in results:
        np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(want))
        fine = np.isfinite(want)
        np.testing.assert_allclose(found[fine], want[fine], rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(found, results[0])


@pytest.mark.parametrize("size", [6, 21])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_follows(size: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Norm, activation and a loop that adds another image, of weights that stay packed."""
    noted = calls_noted(monkeypatch)
    b = NetBuilder("residual")
    x = b.input("x", [-1, 64, size, size])
    hidden = b.relu(b.batch_norm(b.conv2d(x, 64, 3, padding=1, bias=False)))
    again = b.conv2d(hidden, 64, 3, padding=1)
    made = b.relu(again + hidden)
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
    with threads_set(threads):
        for factor in (1.0, -0.5):
            scope.var(filters).set(scope.var(filters).numpy() * np.float32(factor))
            found = []
            for libraries in ("direct,native,xp", "xp"):
                noted.clear()
                with opscope.options(libraries=libraries):
                    scope.var("x").set(image)
                    net.run(scope, context)
                assert ("tile_conv" in noted) <= (libraries != "xp")
                found.append(scope.var(made.name).numpy())
            assert np.any(found[1])
            np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


def test_the_option_turns_tiles_off(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = calls_noted(monkeypatch)
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((1, 64, 9, 9), np.float32)}
    given["w"] = rng.standard_normal((64, 64, 3, 3), np.float32)
    with opscope.options(amx=False):
        run(given, {}, "direct")
    assert "tile_conv" not in noted
    run(given, {}, "direct")
    assert "tile_conv" in noted
