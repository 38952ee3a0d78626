"""The LF-MMI objective on a GPU, which the host asks for nothing (library "cuda").

The host lists the supervision's paths, from the arrays that it was fed. The GPU goes through them,
and replaces an objective that is not a number.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from ...framework.fusion.cuda.device_kernels import (
    WIDE,
    by_blocks,
    cuda_text,
    elementwise,
    sent_together,
    takes,
)
from ...framework.ir.kernel_args import Call, KernelArgs
from .arrays import GRAPH, SUPERVISION, graph_of, supervision_of
from .denominator import LIMIT, TOLERANCE, DenominatorGraph, check_leaky
from .numerator import Numerator, check_output
from .objective import FAILED, ChainOptions


@cache
def _text() -> str:
    lines = f"#define LIMIT {LIMIT!r}", f"#define TOLERANCE {TOLERANCE!r}"
    return "\n".join([*lines, f"#define FAILED ({FAILED!r})", cuda_text("chain")])


def chain_on_gpu(k: KernelArgs) -> Call | None:
    """The kernel of `nnet3.chain_objective`: five launches, whatever the frames."""
    xp, output, state = k.xp, k["output"], k.state
    options = ChainOptions(**{field.name: k.attrs[field.name] for field in fields(ChainOptions)})
    posteriors = k.get("posteriors") if options.uses_posteriors else None
    row_weights, logs = k.get("deriv_weights"), k.get("xent_output")
    results = k["totals"], k.get("xent_totals"), k["deriv"], k.get("xent_deriv")
    totals, xent_totals, deriv, xent_deriv = results
    rows, pdfs = output.shape
    if not rows or not takes(output, posteriors, row_weights, logs, *results):
        return None
    real = output.dtype.type
    every, paths = (k.scratch(output.shape, output.dtype) for _ in range(2))
    sums, good = k.scratch((2,), np.float64), k.scratch((1,), np.int32)
    held: list[_Denominator] = []

    def compute() -> None:
        if not held:  # the graph stays the same
            graph = graph_of({name: k.host(name) for name in GRAPH}, pdfs)
            held.append(_Denominator(xp, graph, output.dtype, options.leaky_hmm_coefficient))
        supervision = supervision_of({name: k.host(name) for name in SUPERVISION}, rows, pdfs)
        check_output(supervision, output.shape)
        penalize = options.out_of_range_regularize and state.host_generator.random() < 0.5
        paths.fill(0)
        _numerator(xp, Numerator(supervision), output, logs, sums, paths)
        sequences = supervision.num_sequences
        of_sequences = held[0](output, sequences, every)
        weight, l2 = supervision.weight, supervision.weight * options.l2_regularize
        numbers = map(np.float64, (weight, supervision.total_weight, l2))
        given = sums, *of_sequences, totals, xent_totals, good, np.int64(sequences), *numbers
        by_blocks(xp, _text(), "chain_totals", real, 1, given)()
        beyond = 2.0 * options.out_of_range_regularize if penalize else 0.0
        of_posteriors = options.lwf_scale + options.lwf_den_scale
        numbers = weight, 1.0 + options.lwf_den_scale, beyond, of_posteriors, l2
        arrays = output, every, paths, posteriors, row_weights, good, deriv, xent_deriv
        given = *arrays, *map(np.int64, (output.size, pdfs)), *map(real, numbers)
        given = *given, real(options.xent_regularize)
        elementwise(xp, _text(), "chain_derivative", real, output.size, given)()

    return compute


class _Denominator:
    """The paths of the denominator graph, gone through by a kernel."""

    def __init__(self, xp: Any, graph: DenominatorGraph, dtype: np.dtype, leaky: float) -> None:
        check_leaky(leaky)
        group, state, pdf = graph.groups()
        arcs, groups = _lists(group, len(state))
        back, backs = _lists(graph.source, graph.states)
        by_pdf, pdfs = _lists(pdf, graph.num_pdfs)
        prob, initial = graph.prob.astype(dtype), graph.initial.astype(dtype)
        lists = groups, graph.source[arcs], prob[arcs], state, pdf, _lists(state, graph.states)[1]
        lists += backs, group[back], prob[back], pdfs, by_pdf, initial, initial * dtype.type(leaky)
        whole = [one if one.dtype == dtype else one.astype(np.int32) for one in lists]
        self._xp = xp
        self._lists = sent_together(xp, whole)
        self._sizes = graph.states, len(state), graph.num_pdfs

    def __call__(self, output: Any, sequences: int, posterior: Any) -> tuple[Any, Any, Any]:
        """Write the posteriors.

        Returns:
            Of each sequence: the log-probability, the sum of the posteriors of the first frame,
            and the sum of the squares of the output.
        """
        xp, dtype = self._xp, output.dtype
        frames = len(output) // sequences
        states, groups, _ = self._sizes
        shapes = (frames + 1, states), (frames,), (states,), (2, groups)
        scratch = [xp.empty((sequences, *shape), dtype) for shape in shapes]
        found = tuple(xp.empty(sequences, kind) for kind in (np.float64, dtype, np.float64))
        sizes = map(np.int64, (frames, *self._sizes))
        given = output, *self._lists, *scratch, *found, posterior, *sizes
        by_blocks(xp, _text(), "chain_denominator", dtype, sequences, given, WIDE)()
        return found


def _lists(keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Elements by their keys, of which there are `count`; and where the ones of each key begin."""
    order = np.argsort(keys, kind="stable")
    return order, np.searchsorted(keys[order], np.arange(count + 1))


def _numerator(xp: Any, lists: Numerator, output: Any, logs: Any, sums: Any, paths: Any) -> None:
    """The posteriors of a supervision's paths, at their places in `paths`; in `sums` the logarithm
    of their probability, and their cross-entropy with `logs`."""
    arcs = lists.arrays(output.shape[1])
    counts = len(arcs["source"]), lists.states, lists.segments
    counts += len(arcs["layers"]) - 1, len(arcs["back_layers"]) - 1, len(lists.rows)
    sizes = counts[0], counts[1] + counts[2], counts[1] + counts[2]
    scratch = [xp.empty(size, np.float64) for size in sizes]
    given = output, *sent_together(xp, [*arcs.values()]), *scratch, logs, sums, paths
    by_blocks(xp, _text(), "numerator_paths", output.dtype, 1, (*given, *map(np.int64, counts)))()
