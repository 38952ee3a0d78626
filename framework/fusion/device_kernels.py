"""Kernels written in CUDA, for work that CuPy has no single call for.

Their text is what C and CUDA have in common, below `NAMES` for what C lacks: the stand-in of CuPy
(testing/device_raw.py) gives these names other meanings and compiles the same text as C. A kernel
works for any number of threads (lanes) in a block, a power of two: the stand-in has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ..ir.kernel_args import Call

THREADS = 256
"""Of a block; the prelude has as much shared memory."""
_MOST_BLOCKS = 1 << 16
_REAL = {"float32": "float", "float64": "double"}

NAMES = """\
typedef long long int64;
typedef int int32;
typedef short int16;
typedef signed char int8;
typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__
#define SHARED __shared__
#define LANE ((int64)threadIdx.x)
#define LANE_COUNT ((int64)blockDim.x)
#define BLOCK_INDEX ((int64)blockIdx.x)
#define BLOCK_COUNT ((int64)gridDim.x)
#define SYNC __syncthreads()
#define INFINITE __longlong_as_double(0x7ff0000000000000ll)
#define FIRST_TO_MARK(flag) (atomicCAS((uint64 *)(flag), 0ull, 1ull) == 0ull)
"""
_COMMON = f"""
#define EACH(i, size) \\
  for (int64 i = BLOCK_INDEX * LANE_COUNT + LANE; i < (size); i += BLOCK_COUNT * LANE_COUNT)
#define LANES(i, size) for (int64 i = LANE; i < (size); i += LANE_COUNT)
#define FIRST_LANE (LANE == 0)
#define REDUCTION(name, type, joined)                         \\
  DEVICE type name(type value) {{                              \\
    SHARED type held[{THREADS}];                                    \\
    held[LANE] = value;                                       \\
    SYNC;                                                     \\
    for (int64 half = LANE_COUNT / 2; half > 0; half /= 2) {{  \\
      if (LANE < half) {{                                      \\
        type a = held[LANE], b = held[LANE + half];           \\
        held[LANE] = joined;                                  \\
      }}                                                       \\
      SYNC;                                                   \\
    }}                                                         \\
    value = held[0];                                          \\
    SYNC;                                                     \\
    return value;                                             \\
  }}
REDUCTION(block_sum, real, a + b)
REDUCTION(block_max, real, fmax(a, b))
REDUCTION(block_sum_double, double, a + b)
REDUCTION(block_max_double, double, fmax(a, b))

DEVICE int64 part_of(const int64 *ends, int64 i) {{
  int64 part = 0;
  while (i >= ends[part]) part++;
  return part;
}}
"""


def takes(*arrays: Any) -> bool:
    """Whether kernels take arrays as plain memory."""
    return all(array is None or array.flags.c_contiguous for array in arrays)


def elementwise(xp: Any, text: str, name: str, dtype: Any, size: int, args: Sequence[Any]) -> Call:
    """A call of a kernel that loops by EACH over `size` elements; there is one at least."""
    blocks = min(-(-size // THREADS), _MOST_BLOCKS)
    return by_blocks(xp, text, name, dtype, blocks, args)


def by_blocks(xp: Any, text: str, name: str, dtype: Any, blocks: int, args: Sequence[Any]) -> Call:
    """A call of a kernel of which each block does a part by itself; there is one at least."""
    kernel = _kernel(xp, text, name, np.dtype(dtype).name)
    given = tuple(np.uint64(0) if arg is None else arg for arg in args)
    return partial(kernel, (blocks,), (THREADS,), given)


@cache
def _kernel(xp: Any, text: str, name: str, dtype: str) -> Any:
    return xp.RawKernel(source_of(text, dtype), name)


def source_of(text: str, dtype: str) -> str:
    """The whole text of a kernel whose `real` is a dtype."""
    return f"typedef {_REAL[dtype]} real;\n{NAMES}{_COMMON}{text}"


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
