"""Convolutions of arrays with gaps by one library, and their errors."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import CFUNCTYPE, c_int64, c_void_p
from typing import Any

import numpy as np

from opscope.framework.base.backend import CPUPlace
from opscope.framework.base.cpu.threads import threads_set
from opscope.framework.fusion import team
from opscope.framework.ir.infer import infer_one
from opscope.framework.ir.kernel_args import KernelArgs
from opscope.framework.ir.op_list import OpNode
from opscope.framework.ir.operation import Operator
from opscope.framework.ir.registry import lookup
from opscope.testing.op_runner import Bench, poisoned


def channels_last(array: np.ndarray) -> np.ndarray:
    """The same values, with a gap after each pixel."""
    pixels = np.moveaxis(array, 1, -1)
    wide = poisoned(np, (*pixels.shape[:-1], pixels.shape[-1] + 3), array.dtype)
    view = wide[..., :-3]
    view[...] = pixels
    return np.moveaxis(view, -1, 1)


def run(
    given: Mapping[str, np.ndarray], attrs: dict[str, Any], library: str, threads: int = 1
) -> np.ndarray:
    """What a library makes of a convolution, each item of whose task is done part by part."""
    rank = given["x"].ndim - 2
    node = OpNode(f"conv{rank}d", {name: (name,) for name in given}, {"out": ("out",)}, attrs)
    op = Operator(node)
    specs = {name: (array.shape, array.dtype) for name, array in given.items()}
    specs.update(infer_one(op, specs, {}, {}))
    arrays = {name: array.copy() for name, array in given.items()}
    arrays["x"] = channels_last(arrays["x"])
    arrays["out"] = channels_last(poisoned(np, *specs["out"]))
    args = KernelArgs(op, arrays, specs, Bench(CPUPlace(), False, {}))
    kernels = lookup(node.type).kernels_for("cpu", given["x"].dtype, (library,))
    with threads_set(threads), np.errstate(all="ignore"):
        call = kernels[0].bind(args)
        assert call is not None
        task = team.task_of(call)
        if task is None:
            call()
        else:
            for function, argument in task.items:
                part = CFUNCTYPE(None, c_void_p, c_int64, c_int64)(function)
                for number in reversed(range(3 * threads)):  # the order must not matter
                    part(argument, number, 3 * threads)
    return arrays["out"]


def exactly(given: Mapping[str, np.ndarray], attrs: dict[str, Any]) -> np.ndarray:
    """The result in float64."""
    return run({name: array.astype(np.float64) for name, array in given.items()}, attrs, "xp")


def worst_error(given: Mapping[str, np.ndarray], attrs: dict[str, Any], found: np.ndarray) -> float:
    """Relative to the sum of what is added up."""
    size = exactly({name: np.abs(array) for name, array in given.items()}, attrs)
    return float((np.abs(found - exactly(given, attrs)) / (size + 1e-30)).max())
