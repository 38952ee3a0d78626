"""Values that wait on the host: on the host itself, and on the stand-in for a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from opscope import OpContext, Scope
from opscope.framework.base.backend import CPUPlace, Place
from opscope.framework.base.errors import RunError
from opscope.framework.runtime.plain_net import PlainNet
from opscope.operators.control.host_copies import _HostCopies
from opscope.testing import device_double
from opscope.testing.device_double import DOUBLE


@pytest.fixture(params=["cpu", "double"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "cpu":
        yield CPUPlace()
    else:
        with device_double.instead_of_cupy():
            yield DOUBLE


def there_and_back() -> PlainNet:
    net = PlainNet()
    net.add_op("square", ["x"], ["a"])
    net.add_op("to_host_start", ["a"], ["t"])
    net.add_op("to_host_wait", ["a", "t"], ["w"])
    net.add_op("from_host_start", ["a", "t"], ["l"])
    net.add_op("from_host_wait", ["l", "t"], ["b"])
    return net


@pytest.mark.parametrize("shape", [(3, 4), (1,), (0, 2), ()])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "float16"])
def test_there_and_back(place: Place, shape: tuple[int, ...], dtype: str) -> None:
    net, scope = there_and_back(), Scope(place=place)
    if dtype in ("bool",):
        net = PlainNet()
        net.add_op("assign", ["x"], ["a"])
        for op in there_and_back().operators[1:]:
            net.add_op(op.node)
    values = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    scope.feed({"x": values})
    for _ in range(2):
        net.run(scope, OpContext(live_out=["b"]))
        found = scope.numpy("b")
        assert found.dtype == values.dtype
        np.testing.assert_array_equal(found, values)


def test_batches_of_several_sizes(place: Place) -> None:
    net, scope = there_and_back(), Scope(place=place)
    for rows in (3, 7, 2, 7):
        values = np.arange(2.0 * rows).reshape(rows, 2)
        scope.feed({"x": values})
        net.run(scope, OpContext(live_out=["b"]))
        np.testing.assert_array_equal(scope.numpy("b"), values**2)


def test_memory_is_given_back_after_its_copies() -> None:
    """Who takes pinned memory next writes to it at once."""
    with device_double.instead_of_cupy() as xp:
        copies = _HostCopies(xp)
        copies.make_room("t", 8)
        given = copies._by_ticket["t"].memory
        given[:] = 0
        copies.put("t", xp.asarray(np.array([7.0])))
        copies.make_room("t", 4)
        assert given.view(float)[0] == 0  # it is still under way
        copies.make_room("t", 16)
        assert given.view(float)[0] == 7


def test_nothing_waits() -> None:
    """A copy does not stop the host."""
    with device_double.instead_of_cupy():
        net, scope = there_and_back(), Scope(place=DOUBLE)
        scope.feed({"x": np.ones((3, 4), np.float32)})
        context = OpContext(live_out=["b"])
        net.run(scope, context)
        device_double.crossings.clear()
        net.run(scope, context)
        assert device_double.crossings == []


def test_refuses(place: Place) -> None:
    scope = Scope(place=place)
    scope.feed({"a": np.ones((2, 2)), "t": np.array(0)})
    net = PlainNet()
    net.add_op("from_host_start", ["a", "t"], ["l"])
    with pytest.raises(RunError, match="no value of the ticket 't' waits on the host"):
        net.run(scope)
    net = PlainNet()
    net.add_op("to_host_start", ["a"], ["u"])
    net.add_op("from_host_start", ["b", "u"], ["l"])
    scope.feed({"b": np.ones(3)})
    with pytest.raises(RunError, match=r"the ticket 'u' is \(2, 2\), not \(3,\)"):
        net.run(scope)
