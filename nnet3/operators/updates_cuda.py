"""Updates of Kaldi's trainer in CUDA: rates, norms and scales stay on the GPU (library "cuda").

One kernel takes all arrays of a component, through a table of their addresses.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...framework.fusion.device_kernels import by_blocks, elementwise, pointers, table_of, takes
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...operators.base.calls import copying
from ...operators.collective.ranks import ranks_of
from .updates import UPDATE_SPEED

_TEXT = """
KERNEL parameter_delta(const int64 *table, const int64 *ends, const real *rate,
                       const real *l2_scale, const real *kept, int64 size, real l2,
                       real momentum) {
  real step = rate[0], decay = -2 * l2 * l2_scale[0] * step;
  real share = kept && kept[0] == 0 ? 0 : momentum;
  EACH(i, size) {
    int64 part = part_of(ends, i), at = part ? i - ends[part - 1] : i;
    const real *param = (const real *)table[4 * part];
    const real *grad = (const real *)table[4 * part + 1];
    const real *delta = (const real *)table[4 * part + 2];
    real value = delta && share != 0 ? share * delta[at] : 0;
    if (grad) value += step * grad[at];
    if (decay != 0) value += decay * param[at];
    ((real *)table[4 * part + 3])[at] = value;
  }
}

KERNEL squares_of_changes(const int64 *table, const int64 *sizes, const int64 *starts,
                          double *squares) {
  real square = 0;
  for (int64 array = starts[BLOCK_INDEX]; array < starts[BLOCK_INDEX + 1]; array++) {
    const real *delta = (const real *)table[array];
    LANES(i, sizes[array]) square += delta[i] * delta[i];
  }
  square = block_sum(square);
  if (FIRST_LANE) squares[BLOCK_INDEX] = square;
}

DEVICE double bounded(double square, double bound, double scale, double loose) {
  double norm = sqrt(square) * scale;
  return bound > 0 && norm > bound * loose ? bound * loose / norm : 1;
}

KERNEL bounded_changes(const double *squares, const double *bounds, const real *scale,
                       const real *bound_scale, real *scales, real *factors, real *change,
                       real *kept, int64 count, double total) {
  double whole = scale[0], loose = bound_scale[0], size = fabs(whole), sum = 0, bad = 0;
  LANES(c, count) {
    double factor = bounded(squares[c], bounds[c], size, loose);
    sum += factor * factor * squares[c];
    bad += !isfinite(squares[c]);
  }
  double moved = sqrt(block_sum_double(sum)) * size, most = total * loose;
  int finite = block_sum_double(bad) == 0 && isfinite(moved);
  if (most != 0 && moved > most) whole *= most / moved;
  LANES(c, count) {
    double factor = bounded(squares[c], bounds[c], size, loose);
    factors[c] = (real)factor;
    scales[c] = finite ? (real)(factor * whole) : 0;
  }
  if (FIRST_LANE) {
    change[0] = (real)moved;
    kept[0] = finite;
  }
}

KERNEL apply_change(const int64 *table, const int64 *ends, const real *scales, int64 size,
                    int64 index) {
  real scale = scales[index];
  EACH(i, size) {
    int64 part = part_of(ends, i), at = part ? i - ends[part - 1] : i;
    real value = ((const real *)table[3 * part])[at];
    // A change that is not finite has the scale 0.
    if (scale != 0) value += scale * ((const real *)table[3 * part + 1])[at];
    ((real *)table[3 * part + 2])[at] = value;
  }
}

KERNEL orthonormal_speed(real *gram, const real *wanted, real *speed, int64 rows, double scale,
                         double rate) {
  double trace = 0, twice = 0, square = scale * scale;
  LANES(i, rows) trace += gram[i * (rows + 1)];
  LANES(i, rows * rows) twice += (double)gram[i] * gram[i];
  trace = block_sum_double(trace);
  twice = block_sum_double(twice);
  int stays = (scale < 0 && trace < 1e-15) || (wanted && wanted[0] == 0);
  if (scale < 0 && !stays) {
    double ratio = twice * rows / (trace * trace);  // 1 where all rows have the same norm
    square = twice / trace;
    rate *= ratio > 1.1 ? 0.25 : ratio > 1.02 ? 0.5 : 1;
  }
  if (!stays)
    LANES(i, rows) gram[i * (rows + 1)] -= (real)square;
  if (FIRST_LANE) speed[0] = stays ? 0 : (real)(-4 * rate / square);
}
"""


def parameter_delta(k: KernelArgs) -> Call | None:
    params, targets = k.list("param"), k.list("delta_out")
    none = [None] * len(params)
    columns = params, k.list("grad") or none, k.list("delta") or none, targets
    if not takes(*(array for column in columns for array in column)):
        return None
    table, ends, size = table_of(k.xp, list(zip(*columns, strict=True)))
    if not size:
        return nothing
    real = params[0].dtype.type
    numbers = np.int64(size), real(k.attrs["l2"]), real(k.attrs["momentum"])
    given = table, ends, k["rate"], k["l2_scale"], k.get("kept"), *numbers
    return elementwise(k.xp, _TEXT, "parameter_delta", real, size, given)


def max_change(k: KernelArgs) -> Call | None:
    xp = k.xp
    deltas, counts = k.list("delta"), k.attrs["arrays"]
    if not deltas or not takes(*deltas):
        return None
    real = deltas[0].dtype
    starts = xp.asarray(np.cumsum([0, *counts]).astype(np.int64))
    sizes = xp.asarray(np.array([delta.size for delta in deltas], np.int64))
    squares = k.scratch((len(counts),), np.float64)
    numbers = np.int64(len(counts)), np.float64(k.attrs["total"])
    slots = ("scale", "bound_scale", "scales", "factors", "change", "kept")
    given = squares, xp.asarray(np.array(k.attrs["bounds"])), *(k[slot] for slot in slots)
    changes = pointers(xp, deltas), sizes, starts, squares
    return in_order(
        by_blocks(xp, _TEXT, "squares_of_changes", real, len(counts), changes),
        by_blocks(xp, _TEXT, "bounded_changes", real, 1, (*given, *numbers)),
    )


def apply_change(k: KernelArgs) -> Call | None:
    columns = k.list("param"), k.list("delta"), k.list("param_out")
    if not takes(*(array for column in columns for array in column)):
        return None
    table, ends, size = table_of(k.xp, list(zip(*columns, strict=True)))
    if not size:
        return nothing
    given = table, ends, k["scales"], np.int64(size), np.int64(k.attrs["index"])
    return elementwise(k.xp, _TEXT, "apply_change", columns[0][0].dtype, size, given)


def constrain_orthonormal(k: KernelArgs) -> Call:
    xp, state = k.xp, k.state
    w = k["w_out"] if k["w"].shape[0] <= k["w"].shape[1] else k["w_out"].T
    gram, change = k.scratch((len(w), len(w)), w.dtype), k.scratch(w.shape, w.dtype)
    speed = k.scratch((1,), w.dtype)
    given = gram, k.get("wanted"), speed, np.int64(len(w))
    numbers = np.float64(k.attrs["scale"]), np.float64(UPDATE_SPEED)
    move = in_order(
        partial(xp.matmul, w, w.T, out=gram),
        by_blocks(xp, _TEXT, "orthonormal_speed", w.dtype, 1, (*given, *numbers)),
        partial(xp.matmul, gram, w, out=change),
        partial(xp.multiply, change, speed, change),
        partial(xp.add, w, change, w),
    )
    ranks, probability = ranks_of(k), k.attrs["probability"]

    def step() -> None:
        drawn = np.array([state.host_generator.random()])
        ranks().broadcast(drawn)
        if drawn[0] < probability:
            move()

    return in_order(copying(xp, k["w"], k["w_out"]), step)
