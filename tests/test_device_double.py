"""The stand-in of CuPy refuses what CuPy refuses, and claims nothing that CuPy has not."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.backend import GPUPlace, address, on_device, to_host
from opscope.framework.base.errors import DeviceError
from opscope.testing import device_double
from opscope.testing.device_double import (
    DOUBLE,
    METHODS,
    SIGNATURES,
    UFUNCS,
    crossings,
    instead_of_cupy,
    xp,
)

try:
    import cupy
except ImportError:
    cupy = None


@pytest.fixture(autouse=True)
def current():
    with instead_of_cupy(), on_device(DOUBLE):
        yield


@pytest.fixture
def x():
    return xp.asarray(np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    "mixed",
    [
        np.asarray,
        lambda x: x + np.ones((2, 3)),
        lambda x: np.ones((2, 3)) * x,
        lambda x: np.add(x, 1, out=np.empty((2, 3))),
        lambda x: xp.add(x, np.ones(3)),
        lambda x: xp.multiply(x, 2, np.empty((2, 3))),
        lambda x: xp.matmul(x, np.ones((3, 2))),
        lambda x: xp.concatenate([x, np.ones((2, 3))]),
        lambda x: x[np.array([0])],
        lambda x: x.__setitem__(..., np.ones((2, 3))),
        lambda x: x.take(np.array([0]), 0),
        lambda x: xp.sum(np.ones(3)),
        lambda x: [10, 20][x[0, 1]],
    ],
)
def test_host_and_device_do_not_mix(x, mixed):
    with pytest.raises(TypeError):
        mixed(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: xp.add(x, 1, where=True),
        lambda x: xp.maximum.reduce(x),
        lambda x: xp.maximum.reduceat(x, xp.asarray([0])),
        lambda x: xp.power.at(x, xp.asarray([0]), 1),
        lambda x: xp.maximum.at(xp.zeros(3, int), xp.asarray([0]), 1),
        lambda x: xp.take(x, xp.asarray([0]), 0, None, "clip"),
        lambda x: x.sum(where=x > 0),
        lambda x: x.ctypes,
        lambda x: x.flags.aligned,
        lambda x: xp.matmul(x, x.T, x[:, :2]),
        lambda x: xp.random.Generator(xp.random.Philox4x3210(1)).normal(),
        lambda x: xp.errstate,
        lambda x: xp.einsum("ij->i", x, out=x[0]),
        lambda x: xp.dot(x, x.T, out=xp.empty((2, 4))[:, ::2]),
    ],
)
def test_what_cupy_has_not(x, call):
    with pytest.raises((TypeError, NotImplementedError, AttributeError, ValueError)):
        call(x)


def test_races():
    x = xp.arange(6)
    for race in (
        lambda: xp.copyto(x[1:], x[:-1]),
        lambda: x[:3].sum(out=x[1, ...]),
        lambda: x.__setitem__(xp.asarray([1, 1]), xp.asarray([2, 3])),
    ):
        with pytest.raises(RuntimeError, match="race"):
            race()


def test_another_device(x):
    other = device_double.ndarray(np.ones(3), 0)
    with pytest.raises(RuntimeError, match="array of device 0 on device 1"):
        x + other
    assert (x + xp.asarray(other)).device == 1
    assert other[1:].device == other.reshape(3, 1).T.device == 0


def test_gpus_that_are_not_there():
    with pytest.raises(DeviceError, match="GPU 2 was asked for, but CuPy finds 2, from 0 on"):
        GPUPlace(2).xp  # noqa: B018
    assert GPUPlace(1).xp is xp


def test_memory_is_garbage_at_first():
    assert np.isnan(xp.empty((2, 3)).get()).all()
    assert (xp.empty(3, np.int32).get() == -1).all()
    assert np.isnan(xp.empty(16, np.uint8).view(np.float32).get()).all()


def test_results_stay_on_the_device_until_they_are_fetched(x):
    crossings.clear()
    total = x.sum() * np.float32(2)
    assert type(total) is xp.ndarray and total.shape == () and not crossings
    assert float(total) == 30 and to_host(total) == 30 and crossings == ["float", "get"]
    assert type(np.add(x, x)) is type(np.sum(x)) is xp.ndarray  # NumPy hands over to CuPy
    assert address(x[1:]) - address(x) == 24


def test_random_numbers_want_a_size():
    generator = xp.random.Generator(xp.random.Philox4x3210(1))
    same = generator.random(out=xp.empty(9)).get()
    assert (same == same[0]).all()  # as CuPy does it
    assert len(set(generator.random(9, out=xp.empty(9)).get())) == 9


@pytest.mark.skipif(cupy is None, reason="no CuPy to compare with (it needs no GPU for that)")
def test_cupy_has_all_this():
    for name, text in SIGNATURES.items():
        _check(functools.reduce(getattr, name.split("."), cupy), text)
    for name, text in METHODS.items():
        _check(getattr(cupy.ndarray, name), f"self {text}")
    for name in UFUNCS:
        ufunc = getattr(cupy, name)
        assert (ufunc.nin, ufunc.nout) == (getattr(xp, name).nin, getattr(xp, name).nout)
    for name in ("random", "standard_normal", "uniform", "integers"):
        own = inspect.signature(getattr(device_double.Generator, name)).parameters
        assert list(own) == list(inspect.signature(getattr(cupy.random.Generator, name)).parameters)


def _check(function: Any, text: str) -> None:
    wanted = [part.partition("=")[0] for part in text.split()]
    assert _parameters(function)[: len(wanted)] == wanted, f"{function}: {wanted}"


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a method in Cython: its first line tells
        (inside,) = re.match(r".*?\((.*)\)", function.__doc__).groups()
        return [re.split(r"[:=]", part)[0].split()[-1] for part in inside.split(",")]
