"""Copies between arrays of any layout, which threads share where runs of elements are long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opscope.framework.fusion import team
from opscope.framework.fusion.rows.row_copies import copy_call
from opscope.testing.op_runner import poisoned

pytestmark = pytest.mark.skipif(team.library() is None, reason="there is no native library")

_PLANES = 2, 6, 40, 60
_FLOATS = np.float32, np.float64
_ALL = *_FLOATS, np.int64
_Cut = Callable[[Any], Any]
# Of each case the source, the target, and the dtypes of which threads share the copy.
_CASES: dict[str, tuple[_Cut, _Cut, tuple[Any, ...]]] = {
    "turned planes": (lambda a: a.transpose(1, 0, 2, 3), lambda a: a.reshape(6, 2, 40, 60), _ALL),
    "a slice of channels": (lambda a: a[:, 1:5], lambda a: a[:, :4], _ALL),
    "every second plane": (lambda a: a[:, ::2], lambda a: a[:, 3:], _ALL),
    "rows of an image": (lambda a: a[:, :, 3:35], lambda a: a[:, :, 8:], _ALL),
    "one for all": (lambda a: np.broadcast_to(a[:1], a.shape), lambda a: a, _ALL),
    "backwards": (lambda a: a[:, ::-1], lambda a: a, ()),
    "short runs": (lambda a: a[..., :10], lambda a: a[..., 9:19], _ALL[1:]),
    "turned pixels": (
        lambda a: a.transpose(0, 1, 3, 2),
        lambda a: a.reshape(2, 6, 60, 40),
        _FLOATS,
    ),
    "channels last": (
        lambda a: a.transpose(0, 2, 3, 1),
        lambda a: a.reshape(2, 40, 60, 6),
        _FLOATS,
    ),
    "a part of channels last": (
        lambda a: a.transpose(0, 2, 3, 1)[:, 3:, 1:],
        lambda a: a.reshape(2, 40, 60, 6)[:, 3:, 1:],
        _FLOATS,
    ),
    "turned backwards": (
        lambda a: a[:, :, ::-1].transpose(0, 1, 3, 2),
        lambda a: a.reshape(2, 6, 60, 40),
        (),
    ),
    "little": (lambda a: a[:1, ::2, :9], lambda a: a[:1, :3, :9], ()),
    "little that is turned": (
        lambda a: a[0, 0].T,
        lambda a: a[0, 0].reshape(60, 40),
        (np.float64,),
    ),
}


@pytest.mark.parametrize("dtype", _ALL)
@pytest.mark.parametrize("case", _CASES)
def test_copies_of_any_layout(case: str, dtype: Any) -> None:
    of_source, of_target, shared = _CASES[case]
    source = of_source(np.arange(np.prod(_PLANES)).reshape(_PLANES).astype(dtype))
    for threads in (0, 1, 3):
        whole = poisoned(np, _PLANES, dtype)
        wanted, target = whole.copy(), of_target(whole)
        of_target(wanted)[...] = source
        call = copy_call(np, source, target)
        task = team.task_of(call)
        assert (task is not None) is (dtype in shared)
        if task is None or not threads:
            call()
        else:
            block = task.memory[0]
            for thread in range(threads):
                block._library.function(block.name)(block.address, thread, threads)
        np.testing.assert_array_equal(whole, wanted)


def test_copies_that_the_library_leaves_to_numpy() -> None:
    words = np.full((40, 3, 60), "word", object)
    memory = np.zeros((3, 50, 60))
    for source, target in (
        (words[:, ::2], np.empty((40, 2, 60), object)),
        (memory[::2], memory[1:]),
        (memory[::2, :40].astype("f4"), memory[1:, :40]),
    ):
        assert team.task_of(copy_call(np, source, target)) is None
