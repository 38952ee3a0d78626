"""Natural gradient in CUDA: its estimate moves on the GPU, which is not asked (library "cuda").

The steps are as in natural_gradient.py. What is of the estimate's rank alone is computed in
float64 by kernels of one block; what is wide goes through products.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.fusion.device_kernels import by_blocks, elementwise, takes
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from .natural_gradient import (
    CONDITION,
    DELTA,
    EPSILON,
    ORTHOGONAL,
    after_copies,
    eta_of,
    first_rows,
    is_due,
)

_COUNTS = "counts of nnet3.precondition"
"""Where a tree of scopes keeps what the host knows of `count`: by variable, with its stamp."""

_BOUNDS = f"""\
#define EPSILON {EPSILON!r}
#define DELTA {DELTA!r}
#define CONDITION {CONDITION!r}
#define ORTHOGONAL {ORTHOGONAL!r}
"""
_TEXT = (
    _BOUNDS
    + """
DEVICE double root_e_of(double d, double sum, double rho, double alpha, int64 cols) {
  double beta = rho * (1 + alpha) + alpha * sum / cols;
  return sqrt(1 / (beta / d + 1));
}

DEVICE double root_c_of(real value, double size, double least_square) {
  return sqrt(fmax((double)value * size, least_square));
}

DEVICE double sum_of(const real *d, int64 rank) {
  double own = 0;
  LANES(i, rank) own += d[i];
  return block_sum_double(own);
}

KERNEL estimate_of_batch(const real *inner, const real *outer, const real *d, const real *rho,
                         const real *frozen, double *numbers, const real *squares, real *z,
                         int64 rank, int64 cols, double now, double old, double alpha) {
  double sum = sum_of(d, rank), trace = 0;
  LANES(i, rank) {
    double root = root_e_of(d[i], sum, rho[0], alpha, cols), both = (double)d[i] + rho[0];
    double own = now * now * outer[i * rank + i] / (root * root)
               + now * old * inner[i * rank + i] / (root * root) * (both + both);
    trace += own + (old * both) * (old * both);
  }
  trace = block_sum_double(trace);
  double size = fmax(1.0, trace);
  if (isnan(trace)) size = trace;
  int moves = isfinite(size) && isfinite((double)squares[0]) && !(frozen && frozen[0] != 0);
  LANES(place, rank * rank) {
    int64 i = place / rank, j = place % rank, back = j * rank + i;
    double ei = root_e_of(d[i], sum, rho[0], alpha, cols);
    double ej = root_e_of(d[j], sum, rho[0], alpha, cols);
    double bi = (double)d[i] + rho[0], bj = (double)d[j] + rho[0];
    double ratio = 1 / (ei * ej);
    double one = now * now * outer[place] * ratio + now * old * inner[place] * ratio * (bi + bj);
    double two = now * now * outer[back] * ratio + now * old * inner[back] * ratio * (bi + bj);
    double value = 0.5 * (one + two);
    if (i == j) value += (old * bi) * (old * bi);
    z[place] = moves ? (real)(value / size) : (real)(i == j);
  }
  if (FIRST_LANE) {
    numbers[0] = moves;
    numbers[1] = size;
  }
}

KERNEL next_estimate(const real *values, const real *vectors, real *d, real *rho, double *numbers,
                     const real *squares, real *a, real *factors, double *root_e1, int64 *order,
                     int64 rank, int64 cols, double now, double old, double alpha) {
  int moves = numbers[0] != 0;
  double size = numbers[1], sum = sum_of(d, rank), rho0 = rho[0];
  double least_square = (rho0 * old) * (rho0 * old), roots = 0, largest = 0;
  int below = 0;
  LANES(i, rank) {  // by falling size; equal ones in their order
    int64 place = 0;
    for (int64 j = 0; j < rank; j++) {
      double mine = fabs((double)values[i]), other = fabs((double)values[j]);
      place += other > mine || (other == mine && j < i);
    }
    order[place] = i;
  }
  SYNC;
  LANES(i, rank) {
    double root = root_c_of(values[order[i]], size, least_square);
    below += (double)values[order[i]] * size < least_square;
    roots += root;
    largest = fmax(largest, root);
  }
  roots = block_sum_double(roots);
  largest = block_max_double(largest);
  below = block_sum_double(below) > 0;
  double first = (double)values[order[0]], last = (double)values[order[rank - 1]];
  double trace = now * squares[0] + old * (cols * rho0 + sum);
  double rho1 = (trace - roots) / (cols - rank);
  double least = fmax(EPSILON, DELTA * largest), sum1 = 0;
  LANES(i, rank) {
    double root = root_c_of(values[order[i]], size, least_square);
    sum1 += fmax(root - rho1, least);
  }
  sum1 = block_sum_double(sum1);
  double rho2 = fmax(rho1, least);
  LANES(i, rank) {
    double root = root_c_of(values[order[i]], size, least_square);
    root_e1[i] = root_e_of(fmax(root - rho1, least), sum1, rho2, alpha, cols);
  }
  SYNC;
  LANES(place, rank * rank) {
    int64 i = place / rank, j = place % rank;
    double root = root_c_of(values[order[i]], size, least_square);
    double before = root_e_of(d[j], sum, rho0, alpha, cols);
    double value = now * (root_e1[i] / root) * vectors[j * rank + order[i]] / before;
    a[place] = moves ? (real)value : (real)(i == j);
  }
  LANES(i, rank) factors[i] = moves ? (real)(old / now * ((double)d[i] + rho0)) : (real)1;
  SYNC;
  if (moves) {
    LANES(i, rank) {
      double root = root_c_of(values[order[i]], size, least_square);
      d[i] = (real)fmax(root - rho1, least);
    }
    if (FIRST_LANE) rho[0] = (real)rho2;
  }
  if (FIRST_LANE) numbers[2] = moves && (first * size > CONDITION * (last * size) || below);
}

KERNEL weighed_sums(const real *w, const real *factors, const double *numbers, real *sums,
                    int64 size, int64 cols) {
  int moves = numbers[0] != 0;
  EACH(i, size) {
    real own = factors[i / cols] * w[i];
    sums[i] = moves ? own + sums[i] : own;
  }
}

KERNEL orthogonalize(real *w, const double *root_e, const double *numbers, int64 rank,
                     int64 cols) {
  // A lane touches the same columns throughout, so that only sums wait for the others.
  if (numbers[2] == 0) return;
  double worst = 0;
  for (int64 i = 0; i < rank; i++)
    for (int64 j = 0; j <= i; j++) {
      double product = 0;
      LANES(c, cols) product += (double)w[i * cols + c] * w[j * cols + c];
      product = block_sum_double(product) / (root_e[i] * root_e[j]);
      worst = fmax(worst, fabs(product - (i == j)));
    }
  if (worst <= ORTHOGONAL) return;
  for (int64 i = 0; i < rank; i++) {
    for (int64 again = 0; again < 2; again++)  // once leaves what cancellation made of it
      for (int64 j = 0; j < i; j++) {
        double product = 0;
        LANES(c, cols) product += (double)w[i * cols + c] * w[j * cols + c];
        product = block_sum_double(product) / (root_e[j] * root_e[j]);
        LANES(c, cols) w[i * cols + c] -= (real)(product * w[j * cols + c]);
      }
    double square = 0;
    LANES(c, cols) square += (double)w[i * cols + c] * w[i * cols + c];
    square = block_sum_double(square);
    double factor = square > 0 ? root_e[i] / sqrt(square) : 0;
    LANES(c, cols) w[i * cols + c] = (real)(factor * w[i * cols + c]);
  }
}

KERNEL preconditioned(const real *x, const real *back, const real *squares, real *out,
                      int64 size) {
  int moves = isfinite((double)squares[0]);
  EACH(i, size) out[i] = moves ? x[i] - back[i] : x[i];
}

KERNEL rescaled(const real *squares, real *scale, int64 *count) {
  double before = squares[0], after = squares[1];
  if (!FIRST_LANE) return;
  scale[0] = isfinite(before) && before > 0 && after > 0 ? (real)sqrt(before / after) : (real)1;
  if (isfinite(before)) count[0] += 1;
}
"""
)


def precondition(k: KernelArgs) -> Call | None:
    if not len(k["x"]) or not takes(k["w_out"]):
        return None
    return after_copies(k, _Preconditioner(k).run)


class _Preconditioner:
    """One `nnet3.precondition` of some rows, with the calls of its parts bound."""

    def __init__(self, k: KernelArgs) -> None:
        self._k = k
        xp, x = k.xp, k["x"]
        out, w, d, rho = (k[slot] for slot in ("out", "w_out", "d_out", "rho_out"))
        rows, cols = x.shape
        rank, real = len(w), x.dtype
        given, made = k.in_one_piece(x), k.in_one_piece(out)
        self._w, self._d, self._rho = w, d, rho
        squares = self._squares = k.scratch((2,), real)
        products, back = k.scratch((rows, rank), real), k.scratch((rows, cols), real)
        sums = k.scratch((rank, cols), real)
        inner, outer, z, a = (k.scratch((rank, rank), real) for _ in range(4))
        factors, root_e = k.scratch((rank,), real), k.scratch((rank,), np.float64)
        numbers, order = k.scratch((3,), np.float64), k.scratch((rank,), np.int64)
        flat, flat_made = given.reshape(-1), made.reshape(-1)
        eta = eta_of(k.attrs, rows)
        sizes = np.int64(rank), np.int64(cols)
        weights = np.float64(eta / rows), np.float64(1.0 - eta), np.float64(k.attrs["alpha"])
        kernel = partial(by_blocks, xp, _TEXT, dtype=real, blocks=1)
        over = partial(elementwise, xp, _TEXT, dtype=real)

        def moments(frozen: Any) -> list[Call]:
            estimate = (inner, outer, d, rho, frozen, numbers, squares, z)
            return [
                partial(xp.matmul, products.T, given, out=sums),
                partial(xp.matmul, products.T, products, out=inner),
                partial(xp.matmul, sums, sums.T, out=outer),
                kernel("estimate_of_batch", args=(*estimate, *sizes, *weights)),
            ]

        def move() -> None:
            values, vectors = xp.linalg.eigh(z)
            arrays = (values, vectors, d, rho, numbers, squares, a, factors, root_e, order)
            kernel("next_estimate", args=(*arrays, *sizes, *weights))()

        wide = (w, factors, numbers, sums, np.int64(sums.size), sizes[1])
        after = [
            move,
            over("weighed_sums", size=sums.size, args=wide),
            partial(xp.matmul, a, sums, out=w),
            kernel("orthogonalize", args=(w, root_e, numbers, *sizes)),
        ]
        self._project = [
            partial(xp.matmul, given, w.T, out=products),
            partial(xp.matmul, products, w, out=back),
        ]
        self._update = in_order(*moments(k.get("frozen")), *after)
        self._start_once = in_order(self._project[0], *moments(None), *after)
        self._starts = 1 if rows <= rank else 3
        whole = (given, back, squares, made, np.int64(given.size))
        self._open = [
            *([] if given is x else [partial(xp.copyto, given, x)]),
            partial(xp.dot, flat, flat, squares[:1].reshape(())),
        ]
        self._close = [
            over("preconditioned", size=given.size, args=whole),
            partial(xp.dot, flat_made, flat_made, squares[1:].reshape(())),
            kernel("rescaled", args=(squares, k["scale"], k["count_out"])),
            *([] if made is out else [partial(xp.copyto, out, made)]),
        ]
        names = [k.op.inputs["count"][0], k.op.outputs["count_out"][0]]
        # Elsewhere the host does not know what the run before has counted.
        self._variable = k.scope.find(names[0]) if names[0] == names[1] else None
        self._counts: dict[Any, tuple[int, int]] = k.scope.root.bound.setdefault(_COUNTS, {})

    def run(self) -> None:
        count = self._count()
        for call in self._open:
            call()
        if count == 0 and np.isfinite(float(self._squares[0])):
            self._start()
        for call in self._project:
            call()
        if is_due(self._k.attrs, count):
            self._update()
        for call in self._close:
            call()
        if self._variable is not None:
            self._counts[self._variable] = self._variable.stamp, count + 1

    def _count(self) -> int:
        """How many batches went into the estimate; the GPU is asked where the host cannot know."""
        variable = self._variable
        stamp, count = self._counts.get(variable, (-1, 0))
        if variable is None or stamp != variable.stamp:
            return int(self._k["count_out"][0])
        return count

    def _start(self) -> None:
        """A first estimate: from special orthonormal rows, improved with the batch itself."""
        rank, cols = self._w.shape
        start = first_rows(rank, cols, self._k.attrs["alpha"])
        self._w[...] = self._k.xp.asarray(start, self._w.dtype)
        self._d[...] = EPSILON
        self._rho[...] = EPSILON
        for _ in range(self._starts):
            self._start_once()
