"""The LF-MMI objective on a GPU, which the host asks for nothing (library "cuda").

The host lists the supervision's paths, from the arrays that it was fed. The GPU goes through them,
and replaces an objective that is not a number.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from ...framework.fusion.device_kernels import by_blocks, elementwise, takes
from ...framework.ir.kernel_args import Call, KernelArgs
from ..operators.objectives import store_derivatives
from .arrays import GRAPH, SUPERVISION, graph_of, supervision_of
from .denominator import LIMIT, TOLERANCE, denominator
from .numerator import Numerator, check_output
from .objective import FAILED, ChainOptions

_TEXT = f"""
#define LIMIT {LIMIT!r}
#define TOLERANCE {TOLERANCE!r}
#define FAILED ({FAILED!r})

DEVICE double log_sum(const int64 *arcs, const int64 *from, const double *score,
                      const double *sums, int64 begin, int64 end) {{
  double top = -INFINITE, sum = 0;
  for (int64 n = begin; n < end; n++) top = fmax(top, sums[from[arcs[n]]] + score[arcs[n]]);
  if (!(top > -INFINITE)) return top;
  for (int64 n = begin; n < end; n++) sum += exp(sums[from[arcs[n]]] + score[arcs[n]] - top);
  return top + log(sum);
}}

DEVICE void go_through(const int64 *layers, int64 count, const int64 *groups,
                       const int64 *states, const int64 *arcs, const int64 *from,
                       const double *score, double *sums) {{
  for (int64 layer = 0; layer < count; layer++) {{
    const int64 first = layers[layer];
    LANES(n, layers[layer + 1] - first) {{
      const int64 group = first + n;
      sums[states[group]] = log_sum(arcs, from, score, sums, groups[group], groups[group + 1]);
    }}
    SYNC;
  }}
}}

KERNEL numerator_paths(const real *output, const double *weight, const int64 *cell,
                       const int64 *source, const int64 *target, const int64 *segment,
                       const int64 *begins, const int64 *layers, const int64 *groups,
                       const int64 *states, const int64 *arcs, const int64 *back_layers,
                       const int64 *back_groups, const int64 *back_states,
                       const int64 *back_arcs, const int64 *places, const int64 *of_place,
                       const int64 *cell_of_place, double *score, double *alpha, double *beta,
                       double *total, real *paths, int64 arc_count, int64 state_count,
                       int64 segments, int64 layer_count, int64 back_count, int64 place_count) {{
  LANES(n, arc_count) score[n] = weight[n] + (cell[n] < 0 ? 0 : (double)output[cell[n]]);
  LANES(n, state_count + segments) {{
    alpha[n] = -INFINITE;
    beta[n] = n < state_count ? -INFINITE : 0;
  }}
  SYNC;
  LANES(n, segments) alpha[begins[n]] = 0;
  SYNC;
  go_through(layers, layer_count, groups, states, arcs, source, score, alpha);
  go_through(back_layers, back_count, back_groups, back_states, back_arcs, target, score, beta);
  double sum = 0;
  LANES(n, segments) sum += alpha[state_count + n];
  sum = block_sum_double(sum);
  LANES(n, place_count) {{
    double share = 0;
    for (int64 m = places[n]; m < places[n + 1]; m++) {{
      const int64 arc = of_place[m];
      share += exp(alpha[source[arc]] + score[arc] + beta[target[arc]]
                   - alpha[state_count + segment[arc]]);
    }}
    paths[cell_of_place[n]] = (real)share;
  }}
  if (FIRST_LANE) total[0] = sum;
}}

KERNEL chain_totals(const double *numerator, const double *denominator, const real *first_frame,
                    const real *square, double *totals, int32 *good, double weight, double whole,
                    double sequences, double l2) {{
  if (!FIRST_LANE) return;
  const double objective = weight * (numerator[0] - denominator[0]);
  good[0] = isfinite(objective) && fabs(first_frame[0] - sequences) <= TOLERANCE;
  totals[0] = whole;
  totals[1] = good[0] ? objective : FAILED * whole;
  totals[2] = l2 != 0 ? -0.5 * l2 * square[0] : 0;
}}

KERNEL chain_derivative(const real *output, const real *every, const real *posteriors,
                        const int32 *good, real *paths, real *deriv, int64 size, real weight,
                        real den_scale, real beyond, real of_posteriors, real l2) {{
  EACH(i, size) {{
    real value = good[0] ? (paths[i] - every[i] * den_scale) * weight : 0;
    paths[i] = good[0] ? paths[i] * weight : 0;
    const real inside = fmin(fmax(output[i], (real)-LIMIT), (real)LIMIT);
    if (beyond != 0) value += beyond * (inside - output[i]);
    if (posteriors) value += of_posteriors * posteriors[i];
    if (l2 != 0) value -= l2 * output[i];
    deriv[i] = value;
  }}
}}
"""


def chain_on_gpu(k: KernelArgs) -> Call | None:
    """The kernel of `nnet3.chain_objective`."""
    xp, output, state = k.xp, k["output"], k.state
    options = ChainOptions(**{field.name: k.attrs[field.name] for field in fields(ChainOptions)})
    posteriors = k.get("posteriors") if options.uses_posteriors else None
    xent = k.get("xent_output") is not None
    rows, pdfs = output.shape
    if not rows or not takes(output, posteriors):
        return None
    real = output.dtype.type
    deriv, paths = (k.scratch(output.shape, output.dtype) for _ in range(2))
    total, good = k.scratch((1,), np.float64), k.scratch((1,), np.int32)
    square = k.scratch((1,), output.dtype)
    flat = output.reshape(-1)
    held: dict[str, Any] = {}

    def compute() -> None:
        if not held:  # the graph stays the same
            held["graph"] = graph_of({name: k.host(name) for name in GRAPH}, pdfs)
        supervision = supervision_of({name: k.host(name) for name in SUPERVISION}, rows, pdfs)
        check_output(supervision, output.shape)
        penalize = options.out_of_range_regularize and state.host_generator.random() < 0.5
        paths.fill(0)
        _numerator(xp, Numerator(supervision), output, paths, total)
        every = denominator(
            held["graph"], output, supervision.num_sequences, options.leaky_hmm_coefficient, xp=xp
        )
        weight, l2 = supervision.weight, supervision.weight * options.l2_regularize
        if l2:
            xp.dot(flat, flat, out=square.reshape(()))
        sums = total, every.log_prob, every.first_frame, square, k["totals"], good
        numbers = weight, supervision.total_weight, supervision.num_sequences, l2
        given = *sums, *map(np.float64, numbers)
        by_blocks(xp, _TEXT, "chain_totals", real, 1, given)()
        beyond = 2.0 * options.out_of_range_regularize if penalize else 0.0
        of_posteriors = options.lwf_scale + options.lwf_den_scale
        numbers = weight, 1.0 + options.lwf_den_scale, beyond, of_posteriors, l2
        arrays = output, every.posterior, posteriors, good, paths, deriv, np.int64(output.size)
        given = *arrays, *map(real, numbers)
        elementwise(xp, _TEXT, "chain_derivative", real, output.size, given)()
        store_derivatives(k, supervision.total_weight, deriv, paths if xent else None)

    return compute


def _numerator(xp: Any, lists: Numerator, output: Any, paths: Any, total: Any) -> None:
    """The posteriors of a supervision's paths, at their places in `paths`, and `total`, the
    logarithm of their probability."""
    arcs = lists.arrays(output.shape[1])
    sent = [xp.asarray(array) for array in arcs.values()]
    counts = len(arcs["source"]), lists.states, lists.segments
    counts += len(arcs["layers"]) - 1, len(arcs["back_layers"]) - 1, len(lists.rows)
    sizes = counts[0], counts[1] + counts[2], counts[1] + counts[2]
    scratch = [xp.empty(size, np.float64) for size in sizes]
    given = output, *sent, *scratch, total, paths, *map(np.int64, counts)
    by_blocks(xp, _TEXT, "numerator_paths", output.dtype, 1, given)()
