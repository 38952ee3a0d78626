"""Paths of labels through sequences: conditional random fields, their decoder, edit distance."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....framework.base.backend import to_host
from ....framework.base.errors import RunError
from ....framework.base.sequence import lengths_of, make_schedule
from ....framework.base.sizes.shape import ShapeArgs
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator
from ....operators.sequence.sequences import levels_of, offsets_in

_LABEL = Slot("label", "sequences of labels, one not 0 in each row, [N, L]")
_SCORES = Slot("x", "scores of the labels of each row, [N, L]")
_PAIRS = Slot("pairs", "score of each label (column) after each other one (row), [L, L]")


def _path_rule(s: ShapeArgs) -> tuple[int, int]:
    """Rows and labels."""
    label, x, pairs = (s.rank(slot, 2) for slot in ("label", "x", "pairs"))
    rows, labels = s.same_shape("label and x", label, x)
    s.same("labels in x and pairs", labels, *pairs)
    s.floats("label", "x", "pairs")
    levels_of(s, "label")
    return rows, labels


class _Steps:
    """Sequences step by step: rows in time-major order, longest sequences first."""

    def __init__(self, k: KernelArgs) -> None:
        xp = k.xp
        schedule = make_schedule(offsets_in(k, "label"))
        self.rows = xp.asarray(schedule.rows)
        starts = [int(start) for start in schedule.starts]
        self.parts = [slice(a, b) for a, b in zip(starts, starts[1:], strict=False)]
        sizes = schedule.sizes
        ends = [np.arange(b, a) for a, b in zip(sizes, [*sizes[1:], 0], strict=False)]
        places = [starts[step] + state for step, state in enumerate(ends)]
        # The sequences with some rows, by falling length: where each begins and ends.
        count = int(sizes[0]) if len(sizes) else 0
        last = np.zeros(count, np.int64)
        for state, place in zip(ends, places, strict=True):
            last[state] = place
        self.first = slice(0, count)
        self.last = xp.asarray(last)

    def pairs(self) -> list[tuple[slice, slice]]:
        """For each step but the first: its rows, and the rows before them."""
        return [
            (now, slice(before.start, before.start + now.stop - now.start))
            for before, now in zip(self.parts, self.parts[1:], strict=False)
        ]


def _label_numbers(k: KernelArgs, label: Any) -> Any:
    """The first label of each row that is not 0.

    Raises:
        RunError: a row has none.
    """
    there = label != 0
    if not bool(there.any(1).all()):
        raise RunError(k.describe("a row of label has no label"))
    return there.argmax(1)


def _log_product(xp: Any, x: Any, matrix: Any) -> Any:
    """log(exp(x) @ exp(matrix)), whatever the sizes of the numbers."""
    edge = x.max(1, keepdims=True)
    peak = matrix.max(0)
    return xp.log(xp.exp(x - edge) @ xp.exp(matrix - peak)) + edge + peak


crf = operator(
    "cntk.crf",
    doc=(
        "Minus the log probability of the labels of each sequence among all paths, summed, as in"
        " a linear-chain conditional random field. In front of its first row each sequence stands"
        " on the label of that row, and goes to itself. (`start` is the sum of the scores of these"
        " steps, which CNTK's value leaves out, and its gradient does not.)"
    ),
    inputs=[_LABEL, _SCORES, _PAIRS],
    outputs=[
        Slot("out", "[1]", not_in_gradient=True),
        Slot("start", "[1]", intermediate=True, not_in_gradient=True),
        Slot("by_x", "gradient of out by x, [N, L]", intermediate=True),
        Slot("by_pairs", "gradient of out by pairs, [L, L]", intermediate=True),
    ],
    source=(
        "CNTK: CRFNode, Source/ComputationNetworkLib/TrainingNodes.h; Yao et al. 2014, Recurrent"
        " conditional random field for language understanding"
    ),
)


@crf.shape_rule
def crf_shape(s: ShapeArgs) -> None:
    rows, labels = _path_rule(s)
    dtype = s.dtype("x")
    s.set("out", ((1,), dtype))
    s.set("start", ((1,), dtype))
    s.set("by_x", ((rows, labels), dtype))
    s.set("by_pairs", ((labels, labels), dtype))


@crf.kernel
def crf_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    label = k["label"]
    x = k["x"]
    pairs = k["pairs"]
    out = k["out"]
    by_x, by_pairs, start = k.get("by_x"), k.get("by_pairs"), k.get("start")
    steps = _Steps(k)
    before, after = k.scratch(x.shape, np.float64), k.scratch(x.shape, np.float64)

    def run() -> None:
        numbers = _label_numbers(k, label)[steps.rows]
        scores = x[steps.rows].astype(np.float64)
        links = pairs.astype(np.float64)
        chosen = label[steps.rows].astype(np.float64)
        firsts = numbers[steps.first]
        xp.copyto(before, scores)
        before[steps.first] += links[firsts]
        for now, last in steps.pairs():
            before[now] += _log_product(xp, before[last], links)
        total = _log_sum(xp, before[steps.last]) if len(firsts) else before[:0, 0]
        path = (chosen * scores).sum()
        for now, last in steps.pairs():
            path = path + links[numbers[last], numbers[now]].sum()
        repeated = links[firsts, firsts].sum()
        out[0] = total.sum() - path - repeated
        if start is not None:
            start[0] = repeated
        if by_x is not None or by_pairs is not None:
            gradients(numbers, scores, links, chosen, total, firsts)

    def gradients(
        numbers: Any, scores: Any, links: Any, chosen: Any, total: Any, firsts: Any
    ) -> None:
        after.fill(0)
        for now, last in reversed(steps.pairs()):
            after[last] = _log_product(xp, after[now] + scores[now], links.T)
        # Certainties: less the log sum over all paths of the row's sequence.
        sums = xp.empty(len(scores))
        for part in steps.parts:
            sums[part] = total[: part.stop - part.start]
        share = xp.exp(before + after - sums[:, None])
        if by_x is not None:
            by_x[steps.rows] = share - chosen
        if by_pairs is None:
            return
        grad = xp.zeros(links.shape)
        peak = links.max()
        for now, last in steps.pairs():
            edge = before[last].max(1, keepdims=True)
            left = xp.exp(before[last] - edge)
            right = xp.exp(scores[now] + after[now] + edge + peak - sums[now][:, None])
            grad += left.T @ right
        grad *= xp.exp(links - peak)
        xp.add.at(grad, firsts, share[steps.first])
        xp.add.at(grad, (firsts, firsts), -1)
        for now, last in steps.pairs():
            xp.add.at(grad, (numbers[last], numbers[now]), -1)
        by_pairs[...] = grad

    return run


def _log_sum(xp: Any, x: Any) -> Any:
    edge = x.max(1)
    return xp.log(xp.exp(x - edge[:, None]).sum(1)) + edge


@crf.backward("x", "pairs")
def crf_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    targets = [(k[f"by_{slot}"], k.get(f"{slot}_grad")) for slot in ("x", "pairs")]

    def run() -> None:
        for slope, target in targets:
            if target is not None:
                xp.multiply(slope, grad, target)

    return run


best_path = operator(
    "cntk.best_path",
    doc=(
        "The labels of the best path through each sequence, one-hot, from the label of its first"
        " row in `label` to the label of its last row; scores of rows and pairs add up."
    ),
    inputs=[_LABEL, _SCORES, _PAIRS],
    outputs=[Slot("out", "[N, L]")],
    source="CNTK: SequenceDecoderNode, Source/ComputationNetworkLib/EvaluationNodes.h",
    no_gradient="it evaluates",
)


@best_path.shape_rule
def best_path_shape(s: ShapeArgs) -> None:
    s.set("out", (_path_rule(s), s.dtype("x")))


@best_path.kernel
def best_path_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    label = k["label"]
    x = k["x"]
    pairs = k["pairs"]
    out = k["out"]
    steps = _Steps(k)
    best = k.scratch(x.shape, x.dtype)
    source = k.scratch(x.shape, np.int64)

    def run() -> None:
        numbers = _label_numbers(k, label)[steps.rows]
        scores = x[steps.rows]
        labels = numbers.copy()
        best.fill(-xp.inf)
        firsts = numbers[steps.first]
        places = xp.arange(len(firsts))
        best[places, firsts] = scores[places, firsts]
        for now, last in steps.pairs():
            through = best[last][:, :, None] + pairs
            xp.argmax(through, 1, out=source[now])
            best[now] = through.max(1) + scores[now]
        for now, last in reversed(steps.pairs()):
            labels[last] = source[now][xp.arange(now.stop - now.start), labels[now]]
        out.fill(0)
        out[steps.rows, labels] = 1

    return run


edit_error = operator(
    "cntk.edit_error",
    doc=(
        "Insertions, deletions and substitutions on the cheapest way from the labels of each"
        " sequence of x to the labels of y, summed, times rows / labels of x. A row's label is its"
        " largest element (the first of several). Of ways that cost the same, substitutions are"
        " taken before insertions, and these before deletions."
    ),
    inputs=[Slot("x", "sequences [N, L]"), Slot("y", "the same sequences [N, L]")],
    outputs=[Slot("out", "[1]")],
    attrs=[
        AttrSpec("substitution", "float", "cost of one", 0.0),
        AttrSpec("deletion", "float", "cost of one", 0.0),
        AttrSpec("insertion", "float", "cost of one", 0.0),
        AttrSpec("squash", "bool", "equal labels side by side count as one", False),
        AttrSpec("ignore", "ints", "labels that are left out", ()),
    ],
    source="CNTK: EditDistanceErrorNode, Source/ComputationNetworkLib/EvaluationNodes.h",
    no_gradient="it counts",
)


@edit_error.shape_rule
def edit_error_shape(s: ShapeArgs) -> None:
    shape = s.same_shape("x and y", s.rank("x", 2), s.rank("y", 2))
    if shape[1] == 0:
        s.fail("x and y have no labels to choose from")
    levels_of(s, "x")
    s.set("out", ((1,), s.floats("x", "y")))


def _padded(labels: np.ndarray, offsets: np.ndarray, attrs: dict) -> tuple[np.ndarray, np.ndarray]:
    """The labels of each sequence that count, side by side, and how many there are."""
    mask = np.ones(len(labels), bool)
    if attrs["squash"]:
        mask[1:] = labels[1:] != labels[:-1]
        mask[offsets[:-1][lengths_of(offsets) > 0]] = True
    mask &= ~np.isin(labels, attrs["ignore"])
    totals = np.concatenate([[0], np.cumsum(mask)])
    lengths = np.diff(totals[offsets])
    table = np.full((len(lengths), int(lengths.max(initial=0))), -1)
    table[np.arange(table.shape[1]) < lengths[:, None]] = labels[mask]
    return table, lengths


def _edits(x: np.ndarray, y: np.ndarray, costs: tuple[np.float32, ...]) -> np.ndarray:
    """Numbers of edits [sequences, 1 + labels of x, 1 + labels of y] from each head of x to each
    head of y; goes along the anti-diagonals of the tables."""
    substitution, deletion, insertion = costs
    count = len(x)
    height = x.shape[1]
    width = y.shape[1]
    cost = np.zeros((count, height + 1, width + 1), np.float32)
    edits = np.zeros((count, height + 1, width + 1))
    cost[:, :, 0] = np.arange(height + 1, dtype=np.float32) * deletion
    cost[:, 0] = np.arange(width + 1, dtype=np.float32) * insertion
    edits[:, :, 0] = np.arange(height + 1)
    edits[:, 0] = np.arange(width + 1)
    for diagonal in range(2, height + width + 1):
        i = np.arange(max(1, diagonal - width), min(height, diagonal - 1) + 1)
        j = diagonal - i
        same = x[:, i - 1] == y[:, j - 1]
        ways = cost[:, i - 1, j - 1], cost[:, i - 1, j] + deletion, cost[:, i, j - 1] + insertion
        replaced = ways[0] + substitution
        first = (replaced <= ways[1]) & (replaced <= ways[2])
        second = ways[1] < ways[2]
        cost[:, i, j] = np.select([same, first, second], [ways[0], replaced, ways[1]], ways[2])
        before = edits[:, i - 1, j - 1], edits[:, i - 1, j], edits[:, i, j - 1]
        edits[:, i, j] = np.select(
            [same, first, second], [before[0], before[0] + 1, before[1] + 1], before[2] + 1
        )
    return edits


@edit_error.kernel
def edit_error_kernel(k: KernelArgs) -> Call:
    x = k["x"]
    y = k["y"]
    out = k["out"]
    attrs = k.attrs
    offsets = offsets_in(k, "x")
    costs = tuple(np.float32(attrs[name]) for name in ("substitution", "deletion", "insertion"))
    if not len(x):
        return partial(out.fill, 0)

    def run() -> None:
        first, lengths = _padded(to_host(x.argmax(1)), offsets, attrs)
        second, widths = _padded(to_host(y.argmax(1)), offsets, attrs)
        edits = _edits(first, second, costs)[np.arange(len(first)), lengths, widths].sum()
        out[0] = edits * len(x) / max(int(lengths.sum()), 1)

    return run
