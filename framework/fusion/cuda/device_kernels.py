"""Kernels written in CUDA, for work that CuPy has no single call for.

They stand in native/cuda. Their text is what C and CUDA have in common, below names.cu for what C
lacks: the stand-in of CuPy (testing/device_raw.py) compiles the same text as C. A kernel
works for any number of threads (lanes) in a block, a power of two: the stand-in has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from .... import native
from ...ir.kernel_args import Call

THREADS = 256
"""Of a block; the prelude has as much shared memory."""
WIDE = 1024
"""Threads of the blocks of a kernel that has few of them, and much for each to do."""
TILE = 32
"""Columns that a block of columns.cu takes at least."""
_ALIGNED = 8  # bytes
_MOST_BLOCKS = 1 << 16
_MOST_SUMS = 1 << 10
_REAL = {"float32": "float", "float64": "double"}


def cuda_text(*names: str) -> str:
    """The files of native/cuda with these names, one after the other."""
    return "\n".join(map(_file, names))


@cache
def _file(name: str) -> str:
    return Path(native.__path__[0], "cuda", f"{name}.cu").read_text(encoding="utf-8")


def takes(*arrays: Any) -> bool:
    """Whether kernels take arrays as plain memory."""
    return all(array is None or array.flags.c_contiguous for array in arrays)


def few_blocks(size: int) -> int:
    """How many blocks a kernel over `size` elements has that leaves a sum for each block."""
    return min(-(-size // THREADS), _MOST_SUMS)


def elementwise(xp: Any, text: str, name: str, dtype: Any, size: int, args: Sequence[Any]) -> Call:
    """A call of a kernel that loops by EACH over `size` elements; there is one at least."""
    blocks = min(-(-size // THREADS), _MOST_BLOCKS)
    return by_blocks(xp, text, name, dtype, blocks, args)


def by_blocks(
    xp: Any,
    text: str,
    name: str,
    dtype: Any,
    blocks: int,
    args: Sequence[Any],
    threads: int = THREADS,
) -> Call:
    """A call of a kernel of which each block does a part by itself; there is one at least."""
    kernel = _kernel(xp, text, name, np.dtype(dtype).name, threads)
    given = tuple(np.uint64(0) if arg is None else arg for arg in args)
    return partial(kernel, (blocks,), (threads,), given)


@cache
def _kernel(xp: Any, text: str, name: str, dtype: str, threads: int) -> Any:
    return xp.RawKernel(source_of(text, dtype, threads), name)


def source_of(text: str, dtype: str, threads: int = THREADS) -> str:
    """The whole text of a kernel whose `real` is a dtype, for blocks of so many threads."""
    lines = f"typedef {_REAL[dtype]} real;", f"#define THREADS {threads}"
    return "\n".join([*lines, cuda_text("names", "prelude"), text])


def sent_together(xp: Any, arrays: Sequence[np.ndarray]) -> list[Any]:
    """Arrays of one dimension on the device, after one copy from the host."""
    starts = np.cumsum([0, *(-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays)])
    held = np.zeros(starts[-1], np.uint8)
    for array, start in zip(arrays, starts, strict=False):
        held[start : start + array.nbytes] = array.view(np.uint8)
    sent = xp.asarray(held)
    pairs = zip(arrays, starts.tolist(), strict=False)
    return [sent[start : start + one.nbytes].view(one.dtype) for one, start in pairs]


def pointers(xp: Any, arrays: Sequence[Any]) -> Any:
    """The addresses of arrays, as int64 on the device: for kernels that take many arrays."""
    return xp.asarray(np.array([0 if a is None else a.data.ptr for a in arrays], np.int64))


def table_of(xp: Any, parts: Sequence[Sequence[Any]], counted: int = -1) -> tuple[Any, Any, int]:
    """A table for kernels that go over many parts, each a row of arrays.

    Args:
        parts: None in place of an array that is not there.
        counted: the place of the arrays whose elements a kernel goes over.

    Returns:
        The addresses, part by part; where each part ends among all elements, for `part_of`; and
        how many elements there are.
    """
    ends = np.cumsum([part[counted].size for part in parts]).astype(np.int64)
    addresses = pointers(xp, [array for part in parts for array in part])
    return addresses, xp.asarray(ends), int(ends[-1]) if parts else 0
