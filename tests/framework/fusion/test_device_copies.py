"""Several copies on a GPU in one kernel, on the stand-in of CuPy."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.backend import on_device
from opscope.framework.fusion.cuda.device_copies import copies
from opscope.testing.device_double import DOUBLE, by_default, launches, xp
from opscope.testing.device_raw import lanes


def run(pairs):
    call = copies(xp, pairs)
    if call is not None:
        launches.clear()
        call()
        assert launches == ["copy_parts"]
    return call


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool", "uint8"])
def test_parts_of_every_form(dtype, threads):
    whole = (np.arange(2 * 6 * 5).reshape(2, 6, 5) % 7).astype(dtype)
    with by_default(), on_device(DOUBLE), lanes(threads):
        source = xp.asarray(whole)
        parts = {
            "columns": source[:, :, 1:3],
            "rows": source[1:, 2:4],
            "one": source[0, 0, :1],
            "all": source,
            "none": source[:0],
            "column": source[0, :, 2],
        }
        made = {name: xp.empty(part.shape, dtype) for name, part in parts.items()}
        assert run([(parts[name], made[name]) for name in parts]) is not None
        for name, part in parts.items():
            np.testing.assert_array_equal(made[name].get(), part.get(), err_msg=name)
        back = xp.zeros((2, 6, 5), dtype)
        assert run([(made["columns"], back[:, :, 1:3]), (made["one"], back[0, 0, :1])])
        wanted = np.zeros_like(whole)
        wanted[:, :, 1:3], wanted[0, 0, 0] = whole[:, :, 1:3], whole[0, 0, 0]
        np.testing.assert_array_equal(back.get(), wanted)


def test_what_is_copied_one_by_one():
    with by_default(), on_device(DOUBLE):
        x = xp.zeros((2, 3, 4, 5), np.float32)
        a, b = xp.empty((2, 3, 4, 5), np.float32), xp.empty((2, 3, 4, 5))
        assert copies(xp, [(x, a)]) is None
        assert copies(xp, [(x, a), (x, b)]) is None  # of another dtype
        halves = x[:, ::2, ::2, ::2], x[:, 1:, 1:, 1:]  # neither rows nor columns
        assert copies(xp, [(one, xp.empty(one.shape, one.dtype)) for one in halves]) is None
        assert copies(xp, [(x[:0], a[:0])] * 2) is None
