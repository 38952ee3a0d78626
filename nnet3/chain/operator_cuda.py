"""The LF-MMI objective on a GPU, which the host asks for nothing (library "cuda").

The host lists the supervision's paths, from the arrays that it was fed. The GPU goes through them,
and replaces an objective that is not a number.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from ...framework.fusion.device_kernels import by_blocks, cuda_text, elementwise, takes
from ...framework.ir.kernel_args import Call, KernelArgs
from ..operators.objectives import store_derivatives
from .arrays import GRAPH, SUPERVISION, graph_of, supervision_of
from .denominator import LIMIT, TOLERANCE, denominator
from .numerator import Numerator, check_output
from .objective import FAILED, ChainOptions


@cache
def _text() -> str:
    lines = f"#define LIMIT {LIMIT!r}", f"#define TOLERANCE {TOLERANCE!r}"
    return "\n".join([*lines, f"#define FAILED ({FAILED!r})", cuda_text("chain")])


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
        by_blocks(xp, _text(), "chain_totals", real, 1, given)()
        beyond = 2.0 * options.out_of_range_regularize if penalize else 0.0
        of_posteriors = options.lwf_scale + options.lwf_den_scale
        numbers = weight, 1.0 + options.lwf_den_scale, beyond, of_posteriors, l2
        arrays = output, every.posterior, posteriors, good, paths, deriv, np.int64(output.size)
        given = *arrays, *map(real, numbers)
        elementwise(xp, _text(), "chain_derivative", real, output.size, given)()
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
    by_blocks(xp, _text(), "numerator_paths", output.dtype, 1, given)()
