"""Products of few rows with a large matrix (library "native"): its reading is what takes the time.

One row with weights that stay packed from run to run (runtime/plans/kept_factors.py) reads blocks
of their columns, each from its first byte to its last, with all sums in registers. A thread reads
the same blocks in every run: they stay in its own second cache.

Elsewhere each thread reads whole rows of the matrix, one after the other, as memory likes best;
sums over pieces of the inner dimension are added up afterwards. How many pieces there are follows
from the sizes alone, and so no result depends on the number of threads.

Every other call goes through the blocks, or pieces, from the last to the first: of weights that the
second cache does not hold, what was read last is still there. 1x784 by 784x512 and 1x512 by 512x512
take 60 us on one core of a Xeon, one after the other, packed or not, and 73 in one direction; on
two cores 13 packed, and 17 as they lie.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...framework.base.cpu.threads import most_threads
from ...framework.fusion import team
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.runtime.plans.memory import as_view, panel_memory
from ..linear.matmul import affine, bind_affine, bind_matmul, matmul
from . import blas, mkl, parts, rows

if TYPE_CHECKING:
    from ...framework.runtime.plans.kept_factors import Kept

_MOST = 4
"""Rows up to which a product is one of few."""
_SMALLEST = 1 << 17
"""Bytes of the matrix from which it is not in a small cache anyway."""
_PIECE, _PIECES = 1 << 18, 16
"""Bytes of the matrix in a piece, and the most pieces."""
_READ = 4
"""Work of reading an element of the matrix."""
_SHARED = 2
"""Blocks of columns for each thread from which threads share them; a piece of rows each is better
where there are fewer."""

_SOURCE = """\
/* rows of a, n, k; a and its step, matrix and its step, pieces of k, their sums; direction */
EXPORT void few_T(const word *b, word t, word parts) {
  const word m = b[0], n = b[1], k = b[2], step = b[6];
  const word first = b[7] * t / parts, last = b[7] * (t + 1) / parts;
  for (word c = first; c < last; c++) {
    const word piece = b[9] ? first + last - 1 - c : c;
    const word end = k * (piece + 1) / b[7];
    T *sums = (T *)b[8] + piece * m * n;
    memset(sums, 0, m * n * sizeof(T));
    for (word j = k * piece / b[7]; j < end;) {
      const T *p = (const T *)b[5] + j * step;
      const word many = j + 8 <= end ? 8 : 1;
      for (word i = 0; i < m; i++) {
        const T *x = (const T *)b[3] + i * b[4] + j;
        T *s = sums + i * n;
        if (many == 8) {
          const T x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3], x4 = x[4], x5 = x[5], x6 = x[6];
          const T x7 = x[7];
#pragma omp simd
          for (word q = 0; q < n; q++)
            s[q] += x0 * p[q] + x1 * p[step + q] + x2 * p[2 * step + q] + x3 * p[3 * step + q] +
                    x4 * p[4 * step + q] + x5 * p[5 * step + q] + x6 * p[6 * step + q] +
                    x7 * p[7 * step + q];
        } else {
#pragma omp simd
          for (word q = 0; q < n; q++) s[q] += x[0] * p[q];
        }
      }
      j += many;
    }
  }
}

/* pieces, m, n, sums; out and its step, bias or 0, alpha, where the direction is */
EXPORT void few_added_T(const word *b, word t, word parts) {
  const word m = b[1], n = b[2], begin = n * t / parts, end = n * (t + 1) / parts;
  const T alpha = real(b[7]), *bias = (const T *)b[6];
  for (word i = 0; i < m; i++) {
    T *s = (T *)b[3] + i * n, *out = (T *)b[4] + i * b[5];
    for (word piece = 1; piece < b[0]; piece++) {
      const T *more = s + piece * m * n;
#pragma omp simd
      for (word q = begin; q < end; q++) s[q] += more[q];
    }
    for (word q = begin; q < end; q++) out[q] = alpha * s[q] + (bias ? bias[q] : 0);
  }
  if (!t) *(word *)b[8] ^= 1;
}

enum { LANES_T = BYTES / sizeof(T), WIDE_T = LINE * LANES_T };
typedef T vec_T __attribute__((vector_size(BYTES)));
typedef T row_T __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));

/* sums over k of a block of `wide` vectors, and `from` (or 0); several of each are under way, as an
   addition waits for the one before */
INLINE void sums_T(const word wide, word k, const T *a, const T *p, T *out, const T *from) {
  vec_T s[SUMS][LINE];
#pragma GCC unroll 4
  for (int q = 0; q < SUMS; q++)
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++)
      s[q][v] = from && !q ? (vec_T) * (const row_T *)(from + v * LANES_T) : (vec_T){0};
  word j = 0;
  for (; j + SUMS <= k; j += SUMS, p += SUMS * wide * LANES_T)
#pragma GCC unroll 4
    for (int q = 0; q < SUMS; q++)
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++)
        s[q][v] += a[j + q] * *(const vec_T *)(p + (q * wide + v) * LANES_T);
  for (; j < k; j++, p += wide * LANES_T)
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) s[0][v] += a[j] * *(const vec_T *)(p + v * LANES_T);
#pragma GCC unroll 4
  for (int v = 0; v < wide; v++)
    *(row_T *)(out + v * LANES_T) = (s[0][v] + s[1][v]) + (s[2][v] + s[3][v]);
}

/* vectors of a block of columns that begins with column j of n */
INLINE word wide_T(word n, word j) { return least(LINE, (n - j + LANES_T - 1) / LANES_T); }

/* k, n; a, packed blocks, out, what to begin with or 0; direction: of the thread that begins with a
   block, in a cache line of its own */
EXPORT void line_T(const word *b, word t, word parts) {
  const word k = b[0], n = b[1], blocks = (n + WIDE_T - 1) / WIDE_T;
  const word first = blocks * t / parts, last = blocks * (t + 1) / parts;
  const T *a = (const T *)b[2], *from = (const T *)b[5];
  if (first == last) return;
  word *back = (word *)b[6] + 8 * first;
  for (word i = first; i < last; i++) {
    const word j = (*back ? first + last - 1 - i : i) * WIDE_T, wide = wide_T(n, j);
    const T *p = (const T *)b[3] + j * k, *begin = from ? from + j : 0;
    T whole[WIDE_T] = {0}, *out = (T *)b[4] + j;
    const word odd = n - j < wide * LANES_T ? n - j : 0;  /* vectors would reach over the edge */
    if (odd && from) begin = memcpy(whole, begin, odd * sizeof(T));
    T *to = odd ? whole : out;
    if (wide == 1)
      sums_T(1, k, a, p, to, begin);
    else if (wide == 2)
      sums_T(2, k, a, p, to, begin);
    else if (wide == 3)
      sums_T(3, k, a, p, to, begin);
    else
      sums_T(LINE, k, a, p, to, begin);
    memcpy(out, whole, odd * sizeof(T));
  }
  *back ^= 1;
}

/* k, n; matrix, its steps along both; packed blocks; a factor */
EXPORT void pack_line_T(const word *b, word t, word parts) {
  const word k = b[0], n = b[1], down = b[3], right = b[4], blocks = (n + WIDE_T - 1) / WIDE_T;
  const T factor = real(b[6]);
  for (word block = blocks * t / parts; block < blocks * (t + 1) / parts; block++) {
    const word c = block * WIDE_T, step = wide_T(n, c) * LANES_T, columns = least(step, n - c);
    const T *from = (const T *)b[2] + c * right;
    T *to = (T *)b[5] + c * k;
    memset(to, 0, k * step * sizeof(T));
    for (word r = 0; r < k; r += TILE)  /* of either layout some stays in the cache */
      for (word i = 0; i < columns; i++)
        for (word j = r; j < least(r + TILE, k); j++)
          to[j * step + i] = factor * from[j * down + i * right];
  }
}
"""

_HEAD = """#if defined(__AVX512F__)
enum { BYTES = 64, LINE = 4, SUMS = 4 };
#elif defined(__AVX2__)
enum { BYTES = 32, LINE = 2, SUMS = 4 };
#else
enum { BYTES = 16, LINE = 2, SUMS = 4 };
#endif
EXPORT int64_t opscope_block_bytes[] = {LINE * BYTES, BYTES};
"""


@functools.cache
def library() -> Any:
    """The compiled functions; None where there is no C compiler, or one that does not take them."""
    return team.load(_HEAD + rows.for_types(rows.ROWS + _SOURCE))


def _row_step(array: Any) -> int | None:
    """Elements from one row to the next; None where a row's do not lie side by side."""
    if not array.flags.aligned or array.strides[1] != array.itemsize or array.strides[0] < 0:
        return None
    return array.strides[0] // array.itemsize


def task(
    kept: Kept | None, a: Any, b: Any, out: Any, alpha: float, bias: Any, by: Any
) -> team.ParallelTask | None:
    """The product, see `parts.by_task`; None where the arrays do not suit.

    Args:
        kept: weights that may stay packed.
    """
    if kept is not None and kept.holds(b):
        found = _kept_task(kept, a, b, out, alpha, bias, by)
        if found is not None:
            return found
    steps = [_row_step(array) for array in (a, b, out)]
    suits = len(a) <= _MOST and b.nbytes >= _SMALLEST and by is None and None not in steps
    if not suits or not rows.suits(out.dtype, bias) or a.dtype != out.dtype or b.dtype != out.dtype:
        return None
    (m, k), n = a.shape, b.shape[1]
    pieces = max(min(b.nbytes // _PIECE, _PIECES), 1)
    shape = pieces, m, n
    sums = as_view(panel_memory(math.prod(shape) * out.itemsize), (shape, out.dtype))
    reading = _argument([m, n, k, a, steps[0], b, steps[1], pieces, sums, 0])
    after = _argument([pieces, m, n, sums, out, steps[2], bias, float(alpha), reading[0][-1:]])
    work = max(_READ * b.size, m * b.size)
    return parts.in_turn(
        [
            _task("few", out.dtype, reading, work),
            _task("few_added", out.dtype, after, max(sums.size, team.ITEM_WORK)),
        ]
    )


def _kept_task(
    kept: Kept, a: Any, b: Any, out: Any, alpha: float, bias: Any, by: Any
) -> team.ParallelTask | None:
    """The product of one row with packed weights; None where they are not, or do not suit."""
    (k, n), size = b.shape, b.itemsize
    (whole, vector) = (ctypes.c_int64 * 2).in_dll(library().handle, "opscope_block_bytes")
    blocks = -(-n * size // whole)
    steps = [step // size for step in b.strides]
    few = most_threads() > 1 and blocks < _SHARED * most_threads()
    if few or len(a) > 1 or min(steps) < 0 or not b.flags.aligned:
        return None
    if not rows.suits(out.dtype, a, out, bias) or not rows.suits(b.dtype, by) or b.dtype != a.dtype:
        return None

    def pack() -> tuple[Any, team.ParallelTask]:
        panels = team.aligned(room)
        words = [k, n, b, *steps, panels, float(alpha)]
        return panels, _task("pack_line", b.dtype, _argument(words), b.size)

    room = -(-n * size // vector) * vector * k
    panels = kept.get(b, ("line", alpha), room, pack)
    if panels is None:
        return None
    begin = bias if by is None else out
    ways = np.zeros((blocks, 8), np.int64)
    return _task("line", b.dtype, _argument([k, n, a, panels, out, begin, ways]), _READ * b.size)


def _argument(words: list[Any]) -> tuple[Any, list[Any]]:
    """The words of a C function, and what owns the memory that they point to."""
    return np.array([rows.word(one) for one in words], np.int64), words


def _task(name: str, dtype: np.dtype, argument: tuple[Any, Any], work: int) -> team.ParallelTask:
    item = library().address(f"{name}_{rows.TYPES[dtype.name]}"), argument[0].ctypes.data
    return team.ParallelTask((item,), work, argument)


def _is_one(x: Any, matrix: Any) -> bool:
    """Whether a product is one of few rows with a large matrix."""
    few = x.size <= _MOST * x.shape[-1] if x.ndim else False
    return few and matrix.ndim == 2 and matrix.nbytes >= _SMALLEST and library() is not None


def _other() -> Callable[..., Call]:
    return blas.product if mkl.library() is None else mkl.product


def _product(k: KernelArgs) -> Callable[..., Call]:
    return parts.by_task(partial(task, getattr(k.frame, "kept", None)), _other())


def _affine(k: KernelArgs) -> Call | None:
    one = k.prepared is None and _is_one(k["x"], k["w"])
    return bind_affine(k, _product(k)) if one else None


def _matmul(k: KernelArgs) -> Call | None:
    one = k.prepared is None and _is_one(k["x"], k["y"])
    return bind_matmul(k, _product(k)) if one else None


for _entry, _kernel in ((affine, _affine), (matmul, _matmul)):
    _entry.kernel(_kernel, device="cpu", dtypes=(np.float32, np.float64), library="native")
