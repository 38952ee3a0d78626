"""Runs what the stand-in of CuPy starts by the interpreter, too, and compares what both leave.

The stand-in computes with the same text compiled as C. The interpreter runs its PTX on the same
memory, as it was before.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from cuda_compiler import ptx_of
from opscope.testing.device_array import memory_of, ndarray
from opscope.testing.device_raw import RawKernel

from .machine import launch
from .memory import Region, region_at

ARCHITECTURE = 80
_BOUNDS = {"float32": 2e-5, "float64": 1e-9}
"""How far results of kernels for these elements may be from each other, of the largest number in an
array: sums are in another order, and PTX multiplies and adds with one rounding."""
_PARTIAL = {"parts"}
"""Arrays with a sum for each block, of which the stand-in has as many, but with one lane each."""
_UNSTABLE = {("move_estimate", "float32")}
"""Kernels whose results are not compared: they divide by eigenvalues that may be rounding alone."""


class Launches(Counter[str]):
    """How often the interpreter ran each kernel.

    Attributes:
        worst: the largest differences of results, as `_BOUNDS` counts them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.worst: dict[str, float] = {}

    def compare(self, kernel: RawKernel, what: str, found: np.ndarray, wanted: np.ndarray) -> None:
        if (kernel.name, kernel.real) in _UNSTABLE:
            return
        if wanted.dtype.kind != "f":
            np.testing.assert_array_equal(found, wanted, err_msg=what)
            return
        finite = np.isfinite(wanted)
        top = float(np.abs(wanted[finite]).max()) if finite.any() else 0.0
        bound = _BOUNDS[kernel.real]
        np.testing.assert_allclose(found, wanted, bound, bound * top, err_msg=what)
        errors = np.abs(found[finite].astype(float) - wanted[finite])
        worst = float(errors.max()) / top if top else 0.0
        self.worst[kernel.real] = max(self.worst.get(kernel.real, 0.0), worst)


@contextlib.contextmanager
def interpreted(threads: Sequence[int] = (256,), most: int = 2) -> Iterator[Launches]:
    """Within it kernels in CUDA run in the interpreter, too, if the stand-in of CuPy starts them.

    Args:
        threads: of a block; a kernel is run with each.
        most: how often the same kernel is run for the same sizes of arrays.
    """
    done = Launches()
    seen: Counter[Any] = Counter()
    addressed: dict[int, np.ndarray] = {}  # arrays whose addresses stand in tables
    call, data = RawKernel.__call__, ndarray.data

    def address(array: ndarray) -> SimpleNamespace:
        memory = array.memory
        held = addressed.get(memory.ctypes.data)
        if held is None or held.size < memory.size:
            addressed[memory.ctypes.data] = memory
        return SimpleNamespace(ptr=memory.ctypes.data)

    def run(
        self: RawKernel, grid: Sequence[int], block: Sequence[int], args: Sequence[Any]
    ) -> None:
        sizes = tuple(arg.shape for arg in args if type(arg) is ndarray)
        seen[self.code, self.name, grid, sizes] += 1
        if seen[self.code, self.name, grid, sizes] > most:
            call(self, grid, block, args)
            return
        arrays = _arrays(args, addressed)
        hidden = [id(memory_of(args[n])) for n in _partial(self, args)]
        regions = _regions(arrays)
        before = [region.memory.copy() for region in regions]
        call(self, grid, block, args)
        after = [region.memory.copy() for region in regions]
        wanted = [array.copy() for array in arrays]
        given = [_bytes(arg) for arg in args]
        ptx = ptx_of(self.code, ARCHITECTURE, lines=True)
        for count in threads:
            for region, bytes_before in zip(regions, before, strict=True):
                region.memory[:] = bytes_before
            fresh = [Region(one.start, one.memory, ready=True) for one in regions]
            launch(ptx, self.name, grid[0], count, given, fresh, self.code)
            for array, value in zip(arrays, wanted, strict=True):
                if id(array) not in hidden:
                    done.compare(self, f"{self.name}, {count} threads", array, value)
            done[self.name] += 1
        for region, bytes_after in zip(regions, after, strict=True):
            region.memory[:] = bytes_after

    RawKernel.__call__, ndarray.data = run, property(address)
    try:
        yield done
    finally:
        RawKernel.__call__, ndarray.data = call, data


def _partial(kernel: RawKernel, args: Sequence[Any]) -> list[int]:
    """The places of arguments whose values depend on the number of lanes."""
    found = re.search(rf"^KERNEL {kernel.name}\(([^)]*)\)", kernel.code, re.MULTILINE)
    assert found is not None
    names = [one.split()[-1].strip("*") for one in found[1].split(",")]
    return [n for n, name in enumerate(names) if name in _PARTIAL and type(args[n]) is ndarray]


def _bytes(arg: Any) -> bytes:
    if type(arg) is ndarray:
        return np.uint64(memory_of(arg).ctypes.data).tobytes()
    return arg.tobytes()


def _arrays(args: Sequence[Any], addressed: dict[int, np.ndarray]) -> list[np.ndarray]:
    """The arrays that a kernel is given, and those whose addresses it is given."""
    own = [memory_of(arg) for arg in args if type(arg) is ndarray]
    tables = [one for one in own if one.dtype == np.int64]
    words = {word for table in tables for word in table.ravel().tolist()}
    return own + [addressed[word] for word in words & addressed.keys() if addressed[word].size]


def _regions(arrays: Sequence[np.ndarray]) -> list[Region]:
    """The memory of arrays; those that overlap are one piece."""
    bounds = sorted(np.lib.array_utils.byte_bounds(one) for one in arrays if one.size)
    joined: list[tuple[int, int]] = []
    for begin, end in bounds:
        if joined and begin < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return [region_at(begin, end - begin) for begin, end in joined]
