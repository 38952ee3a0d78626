"""Supervisions and denominator graphs as arrays, so that variables can hold them.

The arrays of supervisions are padded to sizes with few significant bits: minibatches then have few
different shapes, and a compiled step of training serves them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...framework.base.errors import ShapeError
from ...kaldi.fst.fst import Fst
from .denominator import DenominatorGraph
from .supervisions.supervision import Supervision, check_labels

_BITS = 3  # significant bits of sizes
_SMALLEST = 64


SUPERVISION = ("arcs", "weights", "finals", "weight", "layout")
"""Names of the arrays of a supervision."""
GRAPH = ("graph_arcs", "graph_probs", "graph_initial")
"""Names of the arrays of a denominator graph."""


def supervision_arrays(supervision: Supervision) -> dict[str, np.ndarray]:
    """The FSTs of a supervision as arrays.

    Returns:
        arcs: int32 [arcs, 4]: number of the FST, source, next state, label; label 0 is padding.
        weights: float32 [arcs].
        finals: float32 [states, 2]: number of the FST, -1 for padding, and the final weight.
        weight: float32 [1], of the supervision.
        layout: int32 [2]: sequences, and 1 where each has an FST of its own.

    Raises:
        ShapeError: an FST has arcs without a label.
    """
    arcs, weights, finals = [], [], []
    for number, fst in enumerate(supervision.fsts):
        check_labels(fst)
        columns = (np.full(len(fst.arcs), number), fst.source(), fst.nextstate, fst.ilabel)
        arcs.append(np.stack(columns, axis=1))
        weights.append(fst.weight)
        finals.append(np.stack([np.full(fst.states, number), fst.final], axis=1))
    return {
        "arcs": padded(np.concatenate(arcs).astype(np.int32), 0),
        "weights": padded(np.concatenate(weights).astype(np.float32), 0),
        "finals": padded(np.concatenate(finals).astype(np.float32), -1),
        "weight": np.array([supervision.weight], np.float32),
        "layout": np.array([supervision.num_sequences, bool(supervision.e2e_fsts)], np.int32),
    }


def supervision_of(arrays: Mapping[str, np.ndarray], rows: int, pdfs: int) -> Supervision:
    """The supervision that `supervision_arrays` put into arrays, for an output [rows, pdfs].

    Raises:
        ShapeError: rows are no whole number of frames of all sequences; or there is not one FST, or
            for end-to-end training one for each sequence; or an arc leads to a state, or has a
            label, that there is not.
    """
    sequences, end_to_end = arrays["layout"].tolist()
    if sequences <= 0 or rows % sequences:
        raise ShapeError(f"{rows} rows are no whole number of frames of {sequences} sequences")
    frames = rows // sequences
    arcs, finals = arrays["arcs"], arrays["finals"]
    used = arcs[:, 3] > 0
    arcs = arcs[used]
    weights = arrays["weights"][used]
    _check_below(pdfs + 1, arcs[:, 3], "labels of the supervision")
    finals = finals[finals[:, 0] >= 0]
    count = int(finals[:, 0].max(initial=-1)) + 1
    if count != (sequences if end_to_end else 1):
        raise ShapeError(f"a supervision of {sequences} sequences with {count} FSTs")
    fsts = []
    for number in range(count):
        mine = arcs[:, 0] == number
        _, source, target, label = arcs[mine].T
        final = finals[finals[:, 0] == number, 1]
        _check_below(len(final), arcs[mine, 1:3], f"states in FST {number} of the supervision")
        fsts.append(Fst.of_arcs(source, label, weights[mine], target, final))
    weight = float(arrays["weight"][0])
    supervision = Supervision(weight, sequences, frames, pdfs)
    if end_to_end:
        supervision.e2e_fsts = fsts
    else:
        supervision.fst = fsts[0]
    return supervision


def graph_arrays(graph: DenominatorGraph) -> dict[str, np.ndarray]:
    """A denominator graph as arrays.

    Returns:
        graph_arcs: int32 [arcs, 3]: source, next state, pdf.
        graph_probs: float64 [arcs].
        graph_initial: float64 [states].
    """
    columns = (graph.source, graph.nextstate, graph.pdf)
    return {
        "graph_arcs": np.stack(columns, axis=1).astype(np.int32),
        "graph_probs": graph.prob,
        "graph_initial": graph.initial,
    }


def graph_of(arrays: Mapping[str, np.ndarray], pdfs: int) -> DenominatorGraph:
    """The graph that `graph_arrays` put into arrays.

    Raises:
        ShapeError: an arc leads to a state, or has a pdf, that there is not.
    """
    source, target, pdf = arrays["graph_arcs"].T
    initial = arrays["graph_initial"]
    _check_below(len(initial), arrays["graph_arcs"][:, :2], "states of the denominator graph")
    _check_below(pdfs, pdf, "pdfs of the denominator graph")
    return DenominatorGraph(len(initial), pdfs, source, target, pdf, arrays["graph_probs"], initial)


def _check_below(limit: int, numbers: np.ndarray, what: str) -> None:
    if not numbers.size:
        return
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= limit:
        raise ShapeError(f"{what} run from {low} to {high}, and must be below {limit}")


def padded(array: np.ndarray, value: Any) -> np.ndarray:
    """With rows of `value` at its end, up to a size with few significant bits."""
    size = max(len(array), _SMALLEST)
    shift = max(size.bit_length() - _BITS, 0)
    size = -(-size >> shift) << shift
    out = np.full((size, *array.shape[1:]), value, array.dtype)
    out[: len(array)] = array
    return out
